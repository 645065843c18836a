// The front of update records: checks, values that depend on scalar states, and tensors that have to be
// copied to lie as the others do.
#include "ops/updates.h"

#include <algorithm>
#include <vector>

namespace fl {

DeviceFunction<void(const UpdateCall&)> device::update{"update"};

namespace {

void check_scalar(const UpdateDef& def, const Tensor& t) {
  FL_CHECK(t.defined() && t.numel() == 1, "[", def.name, "] expected scalar states of one element");
}

double read_scalar(const UpdateDef& def, const Tensor& t) {
  check_scalar(def, t);
  return t.dtype() == DType::Float && t.is_cpu() ? double(*t.data<float>()) : item(t).to<double>();
}

void write_scalar(const Tensor& t, double value) {
  if (t.dtype() == DType::Float && t.is_cpu())
    *t.data<float>() = static_cast<float>(value);
  else
    copy_into(t, scalar_tensor(Scalar(value), {DType::Double, Device{}}));
}

// A tensor that does not lie as the others do, its contiguous copy, and whether it must be written back.
struct Detour {
  Tensor original, copy;
  bool written;
};

void prepare(const UpdateDef& def, UpdateJob& job, const Tensor* const* lists, size_t i,
             std::vector<Detour>& detours) {
  const Tensor& first = lists[0][i];
  bool contiguous_all = true, same_strides = true;
  DType compute = DType::Float;
  for (int k = 0; k < def.lists; ++k) {
    const Tensor& t = lists[k][i];
    FL_CHECK(t.defined() && t->sizes == first->sizes, "[", def.name, "] expected tensors of one shape, got ",
             first.sizes(), " and ", t.defined() ? t.sizes() : IntSpan());
    FL_CHECK(t.device() == first.device(), "[", def.name, "] expected all tensors on one device, got ",
             to_string(first.device()), " and ", to_string(t.device()));
    FL_CHECK(is_floating(t.dtype()), "[", def.name, "] expected floating point tensors, got ",
             name_of(t.dtype()));
    contiguous_all &= t.is_contiguous();
    same_strides &= t->strides == first->strides;
    if (t.dtype() == DType::Double) compute = DType::Double;
  }
  const bool linear = contiguous_all || (same_strides && is_dense(first));
  job.wide = compute == DType::Double;
  job.direct = true;
  job.numel = first.numel();
  for (int k = 0; k < def.lists; ++k) {
    const Tensor& t = lists[k][i];
    job.dtype[k] = t.dtype();
    job.direct &= t.dtype() == compute;
    if (linear || t.is_contiguous()) {
      job.data[k] = t.raw();
    } else {
      detours.push_back({t, contiguous(t), bool(def.written >> k & 1)});
      job.data[k] = detours.back().copy.raw();
    }
  }
}

// The lists, scalar states and numbers of a call.
struct Arguments {
  Arguments(const UpdateDef& definition, Value* args)
      : def(definition), n(args[definition.list_arg[0]].length()) {
    const auto list_at = [&](int position) {
      FL_CHECK(args[position].length() == n, "[", def.name, "] expected lists of one length, got ",
               int64_t(n), " and ", int64_t(args[position].length()));
      return args[position].tensors();
    };
    for (int k = 0; k < def.lists; ++k) lists[k] = list_at(def.list_arg[k]);
    for (int k = 0; k < def.scalars; ++k) scalars[k] = list_at(def.scalar_arg[k]);
    for (int k = 0; k < def.numbers; ++k) {
      const Value& v = args[def.number_arg[k]];
      numbers[k] = v.tag() == Value::Tag::Bool ? double(v.to_bool()) : v.to_float();
    }
  }
  Device device() const { return n ? lists[0][0].device() : Device{}; }
  // Whether all scalar states are on an accelerator, where they stay. Devices from outside get them as
  // numbers.
  bool scalars_stay() const {
    bool there = def.scalars > 0 && device().type == DeviceType::CUDA;
    for (int k = 0; k < def.scalars; ++k)
      for (size_t i = 0; there && i < n; ++i) {
        check_scalar(def, scalars[k][i]);
        there = scalars[k][i].device() == lists[0][i].device() && is_floating(scalars[k][i].dtype());
      }
    return there;
  }

  const UpdateDef& def;
  size_t n;
  const Tensor* lists[kUpdateLists];
  const Tensor* scalars[kUpdateScalars];
  double numbers[kUpdateNumbers];
};

// What is to be done for each tensor.
struct Plan {
  Plan(const Arguments& arguments, bool on_device);
  void write_scalars() const;
  void run() const;
  void run_on_device() const;

  const Arguments& arguments;
  std::vector<UpdateJob> jobs;
  std::vector<Detour> detours;
  std::vector<double> values;  // rows: what the loop uses, then the new scalar states, then those before
  int64_t total = 0;
  bool there;  // the device computes values from scalar states that it holds
};

Plan::Plan(const Arguments& a, bool on_device)
    : arguments(a), jobs(a.n), there(on_device && a.scalars_stay()) {
  const UpdateDef& def = arguments.def;
  const int row = def.values + 2 * def.scalars;
  double now[kUpdateScalars], before[kUpdateScalars];
  for (size_t i = 0; i < arguments.n; ++i) {
    UpdateJob& job = jobs[i];
    prepare(def, job, arguments.lists, i, detours);
    total += job.numel;
    job.end = total;
    if (there) continue;
    for (int k = 0; k < def.scalars; ++k) now[k] = read_scalar(def, arguments.scalars[k][i]);
    // Parameters that have seen the same number of steps share their values.
    if (i == 0 || !std::equal(now, now + def.scalars, before)) {
      values.resize(values.size() + row);
      double* at = values.data() + values.size() - row;
      def.loops->once(now, arguments.numbers, at + def.values, at);
      std::copy(now, now + def.scalars, at + def.values + def.scalars);
      std::copy(now, now + def.scalars, before);
    }
    job.values = static_cast<int>(values.size()) - row;
  }
}

void Plan::write_scalars() const {
  const UpdateDef& def = arguments.def;
  for (int k = 0; k < def.scalars; ++k)
    if (def.scalars_written >> k & 1)
      for (size_t i = 0; i < arguments.n; ++i) {
        if (!there) write_scalar(arguments.scalars[k][i], values[jobs[i].values + def.values + k]);
        arguments.scalars[k][i].bump_version();
      }
}

void Plan::run_on_device() const {
  const UpdateDef& def = arguments.def;
  std::vector<const double*> rows;
  for (const UpdateJob& job : jobs) rows.push_back(there ? nullptr : values.data() + job.values);
  std::vector<std::vector<Tensor>> placed(def.lists);
  const Tensor* lists[kUpdateLists];
  for (int k = 0; k < def.lists; ++k) {
    placed[k].assign(arguments.lists[k], arguments.lists[k] + arguments.n);
    for (Tensor& t : placed[k])
      for (const Detour& d : detours)
        if (d.original.same(t)) t = d.copy;
    lists[k] = placed[k].data();
  }
  device::update(arguments.device().type, {def, arguments.n, lists, there ? nullptr : rows.data(),
                                           arguments.scalars, arguments.numbers});
}

void Plan::run() const {
  UpdateCall call{arguments.def, arguments.n};
  call.jobs = jobs.data();
  call.total = total;
  call.table = values.data();
  device::update(DeviceType::CPU, call);
}

}  // namespace

void update_kernel(const Operator&, void* definition, KeySet keys, Value* args, Value*) {
  const UpdateDef& def = *static_cast<const UpdateDef*>(definition);
  const Arguments arguments(def, args);
  if (keys.has(Key::Meta)) return;
  const bool on_device = arguments.device().type != DeviceType::CPU;
  Plan plan(arguments, on_device);
  // Nothing has been written so far: what does not fit has raised.
  plan.write_scalars();
  if (on_device)
    plan.run_on_device();
  else
    plan.run();
  for (const Detour& d : plan.detours)
    if (d.written) copy_into(d.original, d.copy);
  for (int k = 0; k < def.lists; ++k)
    if (def.written >> k & 1)
      for (size_t i = 0; i < arguments.n; ++i) arguments.lists[k][i].bump_version();
}

}  // namespace fl
