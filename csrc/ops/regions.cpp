// Regions of images: suppression of overlapping boxes, pooling of boxes (RoI Align, RoI Pool and their
// position-sensitive forms) and the columns of a deformable convolution.
//
// Every element of a pooled box is a weighted sum over places of one plane, which depend on the box and the
// bin but not on the channel. `Bins` finds these taps once for each bin; forward gathers them, backward
// scatters. Rows of boxes are (image, x1, y1, x2, y2). On accelerators the definitions in ops/vision serve.
#include <cmath>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "dispatch/kernel.h"

namespace fl {
namespace {

struct Tap {
  int64_t offset;
  double weight;
};

// The four neighbours of a position, each with its share.
template <class T>
struct Corners {
  int64_t offset[4];
  T weight[4];
  bool inside = false;
};

struct Plane {
  int64_t height, width;
  int64_t size() const { return height * width; }
};

// Neighbours of a sample of RoI Align: up to one pixel outside it counts as the border, beyond as nothing.
template <class T>
Corners<T> clamped_corners(T y, T x, const Plane& plane) {
  Corners<T> corners{};
  if (!(y >= -1 && y <= plane.height && x >= -1 && x <= plane.width)) return corners;
  corners.inside = true;
  const auto split = [](T at, int64_t size, int64_t& low, int64_t& high) {
    at = std::max(at, T(0));
    low = static_cast<int64_t>(at);
    if (low >= size - 1) {
      low = high = size - 1;
      return T(0);
    }
    high = low + 1;
    return at - static_cast<T>(low);
  };
  int64_t top, bottom, left, right;
  const T down = split(y, plane.height, top, bottom), across = split(x, plane.width, left, right);
  const int64_t offsets[4] = {top * plane.width + left, top * plane.width + right,
                              bottom * plane.width + left, bottom * plane.width + right};
  const T weights[4] = {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across};
  std::copy_n(offsets, 4, corners.offset);
  std::copy_n(weights, 4, corners.weight);
  return corners;
}

struct Pooling {
  double scale = 1;
  int64_t height = 0, width = 0;  // bins of a box
  int64_t sampling_ratio = 0;     // samples along a side of a bin; 0 or less: as many as it has pixels
  bool aligned = false;           // pixel centres lie at half-integers
  bool sampled = false;           // interpolated samples, else the mean over whole pixels
  bool by_position = false;       // each bin reads channels of its own
};

// A product rounded for itself: contracted with a subtraction, a box of whole pixels would not stay whole,
// and get more samples than the definition gives it.
template <class T>
[[gnu::noinline]] T scaled(T x, T scale) {
  return x * scale;
}

// The taps of the bins of one box.
template <class T>
class Bins {
 public:
  Bins(const T* box, const Pooling& pooling, const Plane& plane) : pooling_(pooling), plane_(plane) {
    const T scale = static_cast<T>(pooling.scale);
    if (pooling.sampled) {
      const T shift = pooling.aligned ? T(0.5) : T(0);
      left_ = scaled(box[1], scale) - shift, top_ = scaled(box[2], scale) - shift;
      T width = scaled(box[3], scale) - shift - left_, height = scaled(box[4], scale) - shift - top_;
      if (!pooling.aligned) width = std::max(width, T(1)), height = std::max(height, T(1));
      set_bins(height, width);
      const int64_t ratio = pooling.sampling_ratio;
      rows_ = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(height / static_cast<T>(pooling.height)));
      columns_ = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(width / static_cast<T>(pooling.width)));
    } else {
      left_ = std::round(box[1] * scale), top_ = std::round(box[2] * scale);
      const T extra = pooling.by_position ? T(0) : T(1);
      set_bins(std::max(std::round(box[4] * scale) - top_ + extra, T(1)),
               std::max(std::round(box[3] * scale) - left_ + extra, T(1)));
    }
  }

  // Whole pixels of a bin, clipped to the image: rows [first, last) and columns [first, last).
  void pixels(int64_t i, int64_t j, int64_t (&rows)[2], int64_t (&columns)[2]) const {
    // The position-sensitive mean leaves the last row and column out, as torchvision does.
    const int64_t less = pooling_.by_position ? 1 : 0;
    const auto edge = [](T at, T start, int64_t size) {
      return std::min(std::max(static_cast<int64_t>(at) + static_cast<int64_t>(start), int64_t(0)), size);
    };
    rows[0] = edge(std::floor(static_cast<T>(i) * bin_height_), top_, plane_.height - less);
    rows[1] = edge(std::ceil(static_cast<T>(i + 1) * bin_height_), top_, plane_.height - less);
    columns[0] = edge(std::floor(static_cast<T>(j) * bin_width_), left_, plane_.width - less);
    columns[1] = edge(std::ceil(static_cast<T>(j + 1) * bin_width_), left_, plane_.width - less);
  }

  // Taps of a bin; returns by how much their sum is divided.
  T taps(int64_t i, int64_t j, std::vector<Tap>& taps) const {
    taps.clear();
    if (!pooling_.sampled) {
      int64_t rows[2], columns[2];
      pixels(i, j, rows, columns);
      for (int64_t y = rows[0]; y < rows[1]; ++y)
        for (int64_t x = columns[0]; x < columns[1]; ++x) taps.push_back({y * plane_.width + x, 1});
      return static_cast<T>(std::max<size_t>(taps.size(), 1));
    }
    for (int64_t a = 0; a < rows_; ++a) {
      const T y = top_ + static_cast<T>(i) * bin_height_ +
                  (static_cast<T>(a) + T(0.5)) * bin_height_ / static_cast<T>(rows_);
      for (int64_t b = 0; b < columns_; ++b) {
        const T x = left_ + static_cast<T>(j) * bin_width_ +
                    (static_cast<T>(b) + T(0.5)) * bin_width_ / static_cast<T>(columns_);
        const Corners<T> corners = clamped_corners(y, x, plane_);
        for (int k = 0; corners.inside && k < 4; ++k) taps.push_back({corners.offset[k], corners.weight[k]});
      }
    }
    return static_cast<T>(std::max<int64_t>(rows_ * columns_, 1));
  }

 private:
  void set_bins(T height, T width) {
    bin_height_ = height / static_cast<T>(pooling_.height);
    bin_width_ = width / static_cast<T>(pooling_.width);
  }

  const Pooling& pooling_;
  const Plane& plane_;
  T left_, top_, bin_height_, bin_width_;
  int64_t rows_ = 0, columns_ = 0;
};

void check_boxes(const char* op, const Tensor& values, const Tensor& rois, const Pooling& pooling) {
  FL_CHECK(values.dim() == 4, "[", op, "] expected an input of 4 dimensions, got shape ", values.sizes());
  FL_CHECK(rois.dim() == 2 && rois.size(1) == 5, "[", op, "] expected rois of shape (boxes, 5), got ",
           rois.sizes());
  FL_CHECK(values.dtype() == rois.dtype(), "[", op, "] expected input and rois of one dtype, got ",
           name_of(values.dtype()), " and ", name_of(rois.dtype()));
  FL_CHECK_KIND(is_floating(values.dtype()), NotImplemented, "[", op, "] expected a floating dtype, got ",
                name_of(values.dtype()));
  FL_CHECK(values.device() == rois.device(), "[", op, "] expected input and rois on one device, got ",
           to_string(values.device()), " and ", to_string(rois.device()));
  FL_CHECK(pooling.height > 0 && pooling.width > 0, "[", op, "] expected positive pooled sizes, got ",
           pooling.height, " and ", pooling.width);
}

template <class T>
int64_t image_of(const char* op, const T* box, int64_t images) {
  const int64_t image = static_cast<int64_t>(box[0]);
  FL_CHECK(image >= 0 && image < images, "[", op, "] expected rois of images 0 to ", images - 1, ", got ",
           image);
  return image;
}

int64_t pooled_channels(const char* op, int64_t channels, const Pooling& pooling) {
  if (!pooling.by_position) return channels;
  const int64_t bins = pooling.height * pooling.width;
  FL_CHECK(channels % bins == 0, "[", op, "] expected channels that are a multiple of the ", bins,
           " bins, got ", channels);
  return channels / bins;
}

// The channel that a bin of a result's channel reads.
int64_t source_channel(const Pooling& pooling, int64_t channel, int64_t bin) {
  return pooling.by_position ? channel * pooling.height * pooling.width + bin : channel;
}

Tensor pool(const char* op, const Tensor& input, const Tensor& rois, const Pooling& pooling) {
  check_boxes(op, input, rois, pooling);
  const int64_t channels = pooled_channels(op, input.size(1), pooling), boxes = rois.size(0);
  const Dims sizes{boxes, channels, pooling.height, pooling.width};
  if (input.is_meta()) return empty(sizes, input.options());
  const DType compute = compute_of(input.dtype());
  const Tensor from = contiguous(to_dtype(input, compute)), where = contiguous(to_dtype(rois, compute)),
               result = empty(sizes, {compute, input.device()});
  const Plane plane{input.size(2), input.size(3)};
  const int64_t bins = pooling.height * pooling.width;
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(
        boxes, std::max<int64_t>(1, kGrain / (bins * (channels + 1) * 16)), [&](int64_t first, int64_t last) {
          std::vector<Tap> taps;
          for (int64_t n = first; n < last; ++n) {
            const T* box = where.data<T>() + n * 5;
            const T* image = from.data<T>() + image_of(op, box, input.size(0)) * input.size(1) * plane.size();
            const Bins<T> of_box(box, pooling, plane);
            for (int64_t bin = 0; bin < bins; ++bin) {
              const T count = of_box.taps(bin / pooling.width, bin % pooling.width, taps);
              for (int64_t c = 0; c < channels; ++c) {
                const T* x = image + source_channel(pooling, c, bin) * plane.size();
                T sum = 0;
                for (const Tap& tap : taps) sum += static_cast<T>(tap.weight) * x[tap.offset];
                result.data<T>()[(n * channels + c) * bins + bin] = sum / count;
              }
            }
          }
        });
  });
  return to_dtype(result, input.dtype());
}

Tensor pool_backward(const char* op, const Tensor& grad, const Tensor& rois, const Pooling& pooling,
                     const Dims& sizes) {
  check_boxes(op, grad, rois, pooling);
  const int64_t channels = pooled_channels(op, sizes[1], pooling), bins = pooling.height * pooling.width;
  FL_CHECK(grad.numel() == rois.size(0) * channels * bins, "[", op, "] expected a gradient of shape (",
           rois.size(0), ", ", channels, ", ", pooling.height, ", ", pooling.width, "), got ", grad.sizes());
  if (grad.is_meta()) return empty(sizes, grad.options());
  const DType compute = compute_of(grad.dtype());
  const Tensor from = contiguous(to_dtype(grad, compute)), where = contiguous(to_dtype(rois, compute)),
               result = empty(sizes, {compute, grad.device()});
  const Plane plane{sizes[2], sizes[3]};
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(result.data<T>(), result.numel(), T(0));
    // Boxes overlap, so threads split the channels.
    parallel_for(channels, std::max<int64_t>(1, kGrain / (rois.size(0) * bins * 16 + 1)),
                 [&](int64_t first, int64_t last) {
                   std::vector<Tap> taps;
                   for (int64_t n = 0; n < rois.size(0); ++n) {
                     const T* box = where.data<T>() + n * 5;
                     T* image = result.data<T>() + image_of(op, box, sizes[0]) * sizes[1] * plane.size();
                     const Bins<T> of_box(box, pooling, plane);
                     for (int64_t bin = 0; bin < bins; ++bin) {
                       const T count = of_box.taps(bin / pooling.width, bin % pooling.width, taps);
                       for (int64_t c = first; c < last; ++c) {
                         T* x = image + source_channel(pooling, c, bin) * plane.size();
                         const T value = from.data<T>()[(n * channels + c) * bins + bin] / count;
                         for (const Tap& tap : taps) x[tap.offset] += static_cast<T>(tap.weight) * value;
                       }
                     }
                   }
                 });
  });
  return to_dtype(result, grad.dtype());
}

Tensor channel_mapping(const Tensor& input, const Tensor& rois, const Pooling& pooling) {
  const int64_t channels = input.size(1) / (pooling.height * pooling.width);
  const Tensor mapping =
      empty({rois.size(0), channels, pooling.height, pooling.width}, {DType::Int32, input.device()});
  if (input.is_meta()) return mapping;
  for (int64_t n = 0; n < rois.size(0); ++n)
    std::iota(mapping.data<int32_t>() + n * input.size(1), mapping.data<int32_t>() + (n + 1) * input.size(1),
              0);
  return mapping;
}

// ---------------------------------------------------------------- operators over boxes

Tensor roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t height, int64_t width,
                 int64_t ratio, bool aligned) {
  return pool("roi_align", input, rois, {scale, height, width, ratio, aligned, true, false});
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, double scale, int64_t height, int64_t width,
                          int64_t batch, int64_t channels, int64_t rows, int64_t columns, int64_t ratio,
                          bool aligned) {
  return pool_backward("roi_align", grad, rois, {scale, height, width, ratio, aligned, true, false},
                       {batch, channels, rows, columns});
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t height,
                                        int64_t width, int64_t ratio) {
  const Pooling pooling{scale, height, width, ratio, true, true, true};
  const Tensor result = pool("ps_roi_align", input, rois, pooling);
  return {result, channel_mapping(input, rois, pooling)};
}

Tensor ps_roi_align_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double scale,
                             int64_t height, int64_t width, int64_t ratio, int64_t batch, int64_t channels,
                             int64_t rows, int64_t columns) {
  return pool_backward("ps_roi_align", grad, rois, {scale, height, width, ratio, true, true, true},
                       {batch, channels, rows, columns});
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor& input, const Tensor& rois, double scale, int64_t height,
                                       int64_t width) {
  const Pooling pooling{scale, height, width, 0, false, false, true};
  const Tensor result = pool("ps_roi_pool", input, rois, pooling);
  return {result, channel_mapping(input, rois, pooling)};
}

Tensor ps_roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double scale,
                            int64_t height, int64_t width, int64_t batch, int64_t channels, int64_t rows,
                            int64_t columns) {
  return pool_backward("ps_roi_pool", grad, rois, {scale, height, width, 0, false, false, true},
                       {batch, channels, rows, columns});
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor& input, const Tensor& rois, double scale, int64_t height,
                                    int64_t width) {
  const Pooling pooling{scale, height, width, 0, false, false, false};
  check_boxes("roi_pool", input, rois, pooling);
  const int64_t channels = input.size(1), boxes = rois.size(0), bins = height * width;
  const Dims sizes{boxes, channels, height, width};
  const Tensor places = empty(sizes, {DType::Int32, input.device()});
  if (input.is_meta()) return {empty(sizes, input.options()), places};
  const DType compute = compute_of(input.dtype());
  const Tensor from = contiguous(to_dtype(input, compute)), where = contiguous(to_dtype(rois, compute)),
               result = empty(sizes, {compute, input.device()});
  const Plane plane{input.size(2), input.size(3)};
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(boxes, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        const T* box = where.data<T>() + n * 5;
        const T* image = from.data<T>() + image_of("roi_pool", box, input.size(0)) * channels * plane.size();
        const Bins<T> of_box(box, pooling, plane);
        for (int64_t bin = 0; bin < bins; ++bin) {
          int64_t rows[2], columns[2];
          of_box.pixels(bin / width, bin % width, rows, columns);
          const bool nothing = rows[1] <= rows[0] || columns[1] <= columns[0];
          for (int64_t c = 0; c < channels; ++c) {
            const T* x = image + c * plane.size();
            T most = nothing ? T(0) : -std::numeric_limits<T>::max();
            int32_t place = -1;
            for (int64_t y = rows[0]; y < rows[1]; ++y)
              for (int64_t at = y * plane.width + columns[0]; at < y * plane.width + columns[1]; ++at)
                if (x[at] > most) most = x[at], place = static_cast<int32_t>(at);
            const int64_t index = (n * channels + c) * bins + bin;
            result.data<T>()[index] = most;
            places.data<int32_t>()[index] = place;
          }
        }
      }
    });
  });
  return {to_dtype(result, input.dtype()), places};
}

Tensor roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor& argmax, double scale,
                         int64_t height, int64_t width, int64_t batch, int64_t channels, int64_t rows,
                         int64_t columns) {
  check_boxes("roi_pool", grad, rois, {scale, height, width, 0, false, false, false});
  const Dims sizes{batch, channels, rows, columns};
  if (grad.is_meta()) return empty(sizes, grad.options());
  const DType compute = compute_of(grad.dtype());
  const Tensor from = contiguous(to_dtype(grad, compute)), where = contiguous(to_dtype(rois, compute)),
               places = contiguous(argmax), result = empty(sizes, {compute, grad.device()});
  const int64_t bins = height * width;
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(result.data<T>(), result.numel(), T(0));
    for (int64_t n = 0; n < rois.size(0); ++n) {
      T* image =
          result.data<T>() + image_of("roi_pool", where.data<T>() + n * 5, batch) * channels * rows * columns;
      for (int64_t i = 0; i < channels * bins; ++i) {
        const int64_t index = n * channels * bins + i, place = places.data<int32_t>()[index];
        if (place >= 0) image[i / bins * rows * columns + place] += from.data<T>()[index];
      }
    }
  });
  return to_dtype(result, grad.dtype());
}

// ---------------------------------------------------------------- suppression

Tensor nms(const Tensor& boxes, const Tensor& scores, double threshold) {
  FL_CHECK(boxes.dim() == 2 && boxes.size(1) == 4, "[nms] expected boxes of shape (boxes, 4), got ",
           boxes.sizes());
  FL_CHECK(scores.dim() == 1 && scores.size(0) == boxes.size(0), "[nms] expected a score for each of ",
           boxes.size(0), " boxes, got shape ", scores.sizes());
  FL_CHECK(boxes.dtype() == scores.dtype(), "[nms] expected boxes and scores of one dtype, got ",
           name_of(boxes.dtype()), " and ", name_of(scores.dtype()));
  const int64_t n = boxes.size(0);
  FL_CHECK_KIND(!boxes.is_meta(), NotImplemented,
                "[nms] expected boxes with data, got a tensor on the meta device");
  const DType compute = compute_of(boxes.dtype()) == DType::Double ? DType::Double : DType::Float;
  const Tensor corners = contiguous(to_dtype(boxes, compute)), ranks = contiguous(to_dtype(scores, compute));
  std::vector<int64_t> order(n), chosen;
  std::iota(order.begin(), order.end(), int64_t(0));
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    const T *box = corners.data<T>(), *score = ranks.data<T>();
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    const auto area = [&](int64_t i) {
      return (box[4 * i + 2] - box[4 * i]) * (box[4 * i + 3] - box[4 * i + 1]);
    };
    std::vector<char> dropped(n, 0);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t a = order[i];
      if (dropped[a]) continue;
      chosen.push_back(a);
      const T own = area(a);
      for (int64_t j = i + 1; j < n; ++j) {
        const int64_t b = order[j];
        if (dropped[b]) continue;
        const T width = std::min(box[4 * a + 2], box[4 * b + 2]) - std::max(box[4 * a], box[4 * b]);
        const T height = std::min(box[4 * a + 3], box[4 * b + 3]) - std::max(box[4 * a + 1], box[4 * b + 1]);
        const T shared = std::max(width, T(0)) * std::max(height, T(0));
        dropped[b] = static_cast<double>(shared / (own + area(b) - shared)) > threshold;
      }
    }
  });
  const Tensor result = empty({static_cast<int64_t>(chosen.size())}, {DType::Int64, boxes.device()});
  std::copy(chosen.begin(), chosen.end(), result.data<int64_t>());
  return result;
}

// ---------------------------------------------------------------- deformable convolution

struct Deformation {
  Plane plane;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  int64_t groups;  // of channels, each with offsets of its own
  int64_t batch, channels, rows, columns;

  int64_t taps() const { return kernel[0] * kernel[1]; }
  int64_t places() const { return rows * columns; }
};

// Neighbours of a sample, of which those outside the image count as zero; and how each weight changes along
// the two axes.
template <class T>
struct Sample {
  Corners<T> corners{};
  T down[4], across[4];

  Sample(T y, T x, const Plane& plane) {
    if (!(y > -1 && y < plane.height && x > -1 && x < plane.width)) return;
    corners.inside = true;
    const int64_t top = static_cast<int64_t>(std::floor(y)), left = static_cast<int64_t>(std::floor(x));
    const T v = y - static_cast<T>(top), u = x - static_cast<T>(left);
    for (int k = 0; k < 4; ++k) {
      const int64_t row = top + (k >> 1), column = left + (k & 1);
      const bool in = row >= 0 && row < plane.height && column >= 0 && column < plane.width;
      const T weight_down = k >> 1 ? v : 1 - v, weight_across = k & 1 ? u : 1 - u;
      corners.offset[k] = in ? row * plane.width + column : 0;
      corners.weight[k] = in ? weight_down * weight_across : T(0);
      down[k] = in ? (k >> 1 ? weight_across : -weight_across) : T(0);
      across[k] = in ? (k & 1 ? weight_down : -weight_down) : T(0);
    }
  }

  T value(const T* x) const {
    T sum = 0;
    for (int k = 0; k < 4; ++k) sum += corners.weight[k] * x[corners.offset[k]];
    return sum;
  }
};

Deformation deformation(const Tensor& input, const Tensor& offset, const Tensor& mask, IntSpan kernel,
                        IntSpan stride, IntSpan padding, IntSpan dilation, bool use_mask) {
  FL_CHECK(input.dim() == 4 && offset.dim() == 4,
           "[deform_conv2d] expected input and offset of 4 dimensions, got ", input.sizes(), " and ",
           offset.sizes());
  FL_CHECK(kernel.size() == 2 && stride.size() == 2 && padding.size() == 2 && dilation.size() == 2,
           "[deform_conv2d] expected pairs for kernel, stride, padding and dilation");
  FL_CHECK(input.dtype() == offset.dtype() && (!use_mask || input.dtype() == mask.dtype()),
           "[deform_conv2d] expected input, offset and mask of one dtype, got ", name_of(input.dtype()), ", ",
           name_of(offset.dtype()), " and ", name_of(mask.dtype()));
  FL_CHECK_KIND(is_floating(input.dtype()), NotImplemented, "[deform_conv2d] expected a floating dtype, got ",
                name_of(input.dtype()));
  Deformation d{};
  d.plane = {input.size(2), input.size(3)};
  for (int k = 0; k < 2; ++k) {
    d.kernel[k] = kernel[k], d.stride[k] = stride[k], d.padding[k] = padding[k], d.dilation[k] = dilation[k];
    FL_CHECK(kernel[k] > 0 && stride[k] > 0 && padding[k] >= 0 && dilation[k] > 0,
             "[deform_conv2d] expected positive kernel, stride and dilation, and padding from 0");
    const int64_t size =
        (input.size(2 + k) + 2 * padding[k] - dilation[k] * (kernel[k] - 1) - 1) / stride[k] + 1;
    FL_CHECK(offset.size(2 + k) == size, "[deform_conv2d] expected offsets for ", size,
             " places along dimension ", 2 + k, ", got shape ", offset.sizes());
  }
  const int64_t each = 2 * d.taps();
  FL_CHECK(offset.size(1) % each == 0 && offset.size(1) > 0 && input.size(1) % (offset.size(1) / each) == 0,
           "[deform_conv2d] expected offsets of ", each, " channels for each group of the ", input.size(1),
           " channels, got shape ", offset.sizes());
  d.groups = offset.size(1) / each;
  d.batch = input.size(0), d.channels = input.size(1), d.rows = offset.size(2), d.columns = offset.size(3);
  FL_CHECK(offset.size(0) == d.batch, "[deform_conv2d] expected offsets for ", d.batch, " images, got shape ",
           offset.sizes());
  FL_CHECK(!use_mask || (mask.dim() == 4 && mask.size(0) == d.batch && mask.size(1) == d.groups * d.taps() &&
                         mask.size(2) == d.rows && mask.size(3) == d.columns),
           "[deform_conv2d] expected a mask of shape (", d.batch, ", ", d.groups * d.taps(), ", ", d.rows,
           ", ", d.columns, "), got ", mask.sizes());
  return d;
}

// Calls f(place, tap of the group, sample) for the places and kernel taps of a group of one image.
template <class T, class F>
void each_sample(const Deformation& d, const T* offset, F&& f) {
  for (int64_t tap = 0; tap < d.taps(); ++tap) {
    const T *down = offset + 2 * tap * d.places(), *across = down + d.places();
    for (int64_t place = 0; place < d.places(); ++place) {
      const int64_t y = place / d.columns * d.stride[0] - d.padding[0] + tap / d.kernel[1] * d.dilation[0],
                    x = place % d.columns * d.stride[1] - d.padding[1] + tap % d.kernel[1] * d.dilation[1];
      f(place, tap, Sample<T>(static_cast<T>(y) + down[place], static_cast<T>(x) + across[place], d.plane));
    }
  }
}

Tensor deform_columns(const Tensor& input, const Tensor& offset, const Tensor& mask, IntSpan kernel,
                      IntSpan stride, IntSpan padding, IntSpan dilation, bool use_mask) {
  const Deformation d = deformation(input, offset, mask, kernel, stride, padding, dilation, use_mask);
  const Dims sizes{d.batch, d.channels * d.taps(), d.places()};
  if (input.is_meta()) return empty(sizes, input.options());
  const DType compute = compute_of(input.dtype());
  const Tensor from = contiguous(to_dtype(input, compute)), shifts = contiguous(to_dtype(offset, compute)),
               shares = use_mask ? contiguous(to_dtype(mask, compute)) : Tensor(),
               result = empty(sizes, {compute, input.device()});
  const int64_t each = d.channels / d.groups;
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    parallel_for(d.batch * d.groups, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const T* x = from.data<T>() + i * each * d.plane.size();
        T* y = result.data<T>() + i * each * d.taps() * d.places();
        const T* share = use_mask ? shares.data<T>() + i * d.taps() * d.places() : nullptr;
        each_sample(d, shifts.data<T>() + i * 2 * d.taps() * d.places(),
                    [&](int64_t place, int64_t tap, const Sample<T>& s) {
                      const int64_t at = tap * d.places() + place;
                      const T factor = share ? share[at] : T(1);
                      for (int64_t c = 0; c < each; ++c)
                        y[c * d.taps() * d.places() + at] = factor * s.value(x + c * d.plane.size());
                    });
      }
    });
  });
  return to_dtype(result, input.dtype());
}

std::tuple<Tensor, Tensor, Tensor> deform_columns_backward(const Tensor& grad, const Tensor& input,
                                                           const Tensor& offset, const Tensor& mask,
                                                           IntSpan kernel, IntSpan stride, IntSpan padding,
                                                           IntSpan dilation, bool use_mask) {
  const Deformation d = deformation(input, offset, mask, kernel, stride, padding, dilation, use_mask);
  if (input.is_meta())
    return {empty(input.sizes(), input.options()), empty(offset.sizes(), offset.options()),
            empty(mask.sizes(), mask.options())};
  const DType compute = compute_of(input.dtype());
  const Tensor from = contiguous(to_dtype(input, compute)), shifts = contiguous(to_dtype(offset, compute)),
               shares = use_mask ? contiguous(to_dtype(mask, compute)) : Tensor(),
               g = contiguous(to_dtype(grad, compute)), dx = empty(input.sizes(), {compute, input.device()}),
               doffset = empty(offset.sizes(), {compute, input.device()}),
               dmask = empty(mask.sizes(), {compute, input.device()});
  const int64_t each = d.channels / d.groups;
  dispatch_float(compute, [&](auto type) {
    using T = typename decltype(type)::type;
    std::fill_n(dx.data<T>(), dx.numel(), T(0));
    std::fill_n(dmask.data<T>(), dmask.numel(), T(0));
    parallel_for(d.batch * d.groups, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t samples = d.taps() * d.places();
        const T *x = from.data<T>() + i * each * d.plane.size(), *gy = g.data<T>() + i * each * samples;
        T *gx = dx.data<T>() + i * each * d.plane.size(), *shift = doffset.data<T>() + i * 2 * samples;
        const T* share = use_mask ? shares.data<T>() + i * samples : nullptr;
        each_sample(d, shifts.data<T>() + i * 2 * samples,
                    [&](int64_t place, int64_t tap, const Sample<T>& s) {
                      const int64_t at = tap * d.places() + place;
                      T down = 0, across = 0, whole = 0;
                      for (int64_t c = 0; c < each && s.corners.inside; ++c) {
                        const T value = gy[c * samples + at], scaled = share ? value * share[at] : value;
                        const T* plane = x + c * d.plane.size();
                        for (int k = 0; k < 4; ++k) {
                          const int64_t where = s.corners.offset[k];
                          gx[c * d.plane.size() + where] += s.corners.weight[k] * scaled;
                          down += s.down[k] * plane[where] * scaled;
                          across += s.across[k] * plane[where] * scaled;
                        }
                        whole += s.value(plane) * value;
                      }
                      shift[2 * tap * d.places() + place] = down;
                      shift[(2 * tap + 1) * d.places() + place] = across;
                      if (share) dmask.data<T>()[i * samples + at] = whole;
                    });
      }
    });
  });
  return {to_dtype(dx, input.dtype()), to_dtype(doffset, input.dtype()), to_dtype(dmask, input.dtype())};
}

FL_KERNEL("torchvision::nms", nms, kCpu);
FL_KERNEL("torchvision::roi_align", roi_align, kCpu);
FL_KERNEL("torchvision::_roi_align_backward", roi_align_backward, kCpu);
FL_KERNEL("torchvision::roi_pool", roi_pool, kCpu);
FL_KERNEL("torchvision::_roi_pool_backward", roi_pool_backward, kCpu);
FL_KERNEL("torchvision::ps_roi_align", ps_roi_align, kCpu);
FL_KERNEL("torchvision::_ps_roi_align_backward", ps_roi_align_backward, kCpu);
FL_KERNEL("torchvision::ps_roi_pool", ps_roi_pool, kCpu);
FL_KERNEL("torchvision::_ps_roi_pool_backward", ps_roi_pool_backward, kCpu);
FL_KERNEL("_deform_columns", deform_columns, kCpu);
FL_KERNEL("_deform_columns_backward", deform_columns_backward, kCpu);

}  // namespace
}  // namespace fl
