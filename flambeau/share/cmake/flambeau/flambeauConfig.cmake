# find_package(flambeau): the target flambeau::flambeau, with the C interface (flambeau/flambeau.h) and the C++ one (torch/torch.h).
# Where there is libflambeau.a, flambeau::static is the same without a shared library.
get_filename_component(FLAMBEAU_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(flambeau_INCLUDE_DIRS "${FLAMBEAU_PREFIX}/include")
set(flambeau_LIBRARY "${FLAMBEAU_PREFIX}/libflambeau.so")  # of an installed package
set(flambeau_STATIC_LIBRARY "${FLAMBEAU_PREFIX}/static/libflambeau.a")
if(EXISTS "${FLAMBEAU_PREFIX}/lib/libflambeau.so")  # of a release's archive
  set(flambeau_LIBRARY "${FLAMBEAU_PREFIX}/lib/libflambeau.so")
  set(flambeau_STATIC_LIBRARY "${FLAMBEAU_PREFIX}/lib/libflambeau.a")
endif()
set(flambeau_LIBRARIES flambeau::flambeau)
if(NOT EXISTS "${flambeau_LIBRARY}")
  set(flambeau_FOUND FALSE)
  set(flambeau_NOT_FOUND_MESSAGE "expected ${flambeau_LIBRARY}, found none")
  return()
endif()
if(NOT TARGET flambeau::flambeau)
  add_library(flambeau::flambeau SHARED IMPORTED)
  set_target_properties(flambeau::flambeau PROPERTIES
    IMPORTED_LOCATION "${flambeau_LIBRARY}"
    IMPORTED_NO_SONAME FALSE
    INTERFACE_INCLUDE_DIRECTORIES "${flambeau_INCLUDE_DIRS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
if(EXISTS "${flambeau_STATIC_LIBRARY}" AND NOT TARGET flambeau::static)
  # Operators register themselves when a program starts, so that all objects are linked.
  add_library(flambeau::static INTERFACE IMPORTED)
  set_target_properties(flambeau::static PROPERTIES
    INTERFACE_LINK_OPTIONS "SHELL:-Wl,--whole-archive \"${flambeau_STATIC_LIBRARY}\" -Wl,--no-whole-archive"
    INTERFACE_LINK_LIBRARIES "stdc++;gomp;m;dl;pthread"
    INTERFACE_INCLUDE_DIRECTORIES "${flambeau_INCLUDE_DIRS}"
    INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
set(flambeau_FOUND TRUE)
