// Looks up the generator of a call.
#include "dispatch/generator.h"

namespace fl {

Generator& generator_of(Opaque* named, Device device) {
  if (named == nullptr) return default_generator(device.type);
  Generator* g = named->generator();
  FL_CHECK_KIND(g != nullptr, Type, "[random] expected a Generator, got another object");
  FL_CHECK(g->device.type == device.type, "[random] expected a generator for ", to_string(device),
           ", got one for ", to_string(g->device));
  return *g;
}

}  // namespace fl
