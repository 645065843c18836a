// The extension module flambeau._C.
#include "core/warning.h"
#include "cpu/engine/arch.h"
#include "python/guards.h"
#include "python/library.h"
#include "python/script_front.h"

namespace {

PyModuleDef definition{PyModuleDef_HEAD_INIT,
                       "flambeau._C",
                       "flambeau's native core.",
                       -1,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

void python_warning(const std::string& message) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const int status = PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1);
  PyGILState_Release(state);
  fl::py::check(status);
}

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  using namespace fl::py;
  return guarded([]() -> PyObject* {
#if defined(FL_HAS_V4) && !defined(FL_HAS_V3)
    FL_CHECK(fl::has_v4(),
             "[flambeau] expected a processor with AVX-512, for which alone this build was made "
             "(FLAMBEAU_KERNEL_ARCHS), got one without");
#endif
    fl::set_warning_handler(python_warning);
    Object module = own(PyModule_Create(&definition));
    add_types(module.get());
    add_tensor(module.get());
    add_overrides(module.get());
    add_interop(module.get());
    add_memory(module.get());
    add_profiling(module.get());
    add_random(module.get());
    add_calls(module.get());
    add_library(module.get());
    add_outside(module.get());
    add_opencl(module.get());
    add_pjrt(module.get());
    add_lazy(module.get());
    add_device_memory(module.get());
    add_dispatch_modes(module.get());
    add_autograd(module.get());
    add_nn_module(module.get());
    add_script_fronts(module.get());
    add_guards(module.get());
    add_guarded_function(module.get());
    add_frame_hook(module.get());
    add_optimizer(module.get());
    add_autocast(module.get());
    add_compiled(module.get());
    add_packages(module.get());
    add_definitions(module.get());
    return module.release();
  });
}
