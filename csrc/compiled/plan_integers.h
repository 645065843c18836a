// The integers of a compiled graph that depend on sizes, and everything else: its structure.
#pragma once

#include <vector>

#include "compiled/specialized_function.h"

namespace fl::compiled {

// Whether two graphs differ at most in the integers that are visited: the same steps in the same slots, over
// the same kernels, operators and constants.
bool same_structure(const CompiledGraph& a, const CompiledGraph& b);

namespace integers {

// A visitor gets a value and returns the one to put in its place.
template <class T, class F>
void visit(T& value, const F& f) {
  if constexpr (std::is_const_v<T>)
    f(value);
  else
    value = f(value);
}

template <class D, class F>
void visit_all(D& list, const F& f) {
  for (auto& value : list) visit(value, f);
}

template <class V, class F>
void visit_argument(V& value, const F& f) {
  if (value.tag() == Value::Tag::Int) {
    const int64_t next = f(value.to_int());
    if constexpr (!std::is_const_v<V>) value = Value(next);
  } else if (value.tag() == Value::Tag::IntList) {
    std::vector<int64_t> list = value.ints().vec();
    for (int64_t& x : list) x = f(x);
    if constexpr (!std::is_const_v<V>) value = Value(list);
  }
}

template <class S, class F>
void visit_geometry(S& step, const F& f) {
  visit_all(step.sizes, f);
  visit_all(step.strides, f);
}

template <class L, class F>
void visit_loop(L& loop, const F& f) {
  for (auto& pointer : loop.pointers) visit(pointer.bytes, f);
  visit_all(loop.numbers, f);
  visit(loop.work, f);
}

template <class K, class F>
void visit_kernel(K& kernel, const F& f) {
  for (auto& count : kernel.grid) {
    int64_t wide = count;
    visit(wide, f);
    if constexpr (!std::is_const_v<K>) count = static_cast<unsigned>(wide);
  }
  for (auto& pointer : kernel.pointers) visit(pointer.bytes, f);
  visit_all(kernel.numbers, f);
}

template <class C, class F>
void visit_call(C& call, const F& f) {
  for (auto& argument : call.arguments) visit_argument(argument, f);
  for (auto& offer : call.offers) {
    visit(offer.location.bytes, f);
    visit(offer.bytes, f);
  }
  for (auto& strides : call.strides) visit_all(strides, f);
}

template <class S, class F>
void visit_step(S& step, const F& f) {
  if (auto* allocate = std::get_if<AllocateStep>(&step)) {
    visit_geometry(*allocate, f);
  } else if (auto* view = std::get_if<ViewStep>(&step)) {
    visit_geometry(*view, f);
    visit(view->offset, f);
  } else if (auto* tensor = std::get_if<ArenaTensorStep>(&step)) {
    visit_geometry(*tensor, f);
    visit(tensor->location.bytes, f);
  } else if (auto* loop = std::get_if<LoopStep>(&step)) {
    visit_loop(*loop, f);
  } else if (auto* concurrent = std::get_if<ConcurrentLoopsStep>(&step)) {
    for (auto& one : concurrent->loops) visit_loop(one, f);
  } else if (auto* kernel = std::get_if<KernelStep>(&step)) {
    visit_kernel(*kernel, f);
  } else if (auto* call = std::get_if<CallStep>(&step)) {
    visit_call(*call, f);
  }
}

template <class P, class F>
void visit_program(P& program, const F& f) {
  for (auto& block : program.blocks) visit_all(block.extents, f);
  for (auto& room : program.room) {
    visit(room.wanted, f);
    visit(room.available, f);
  }
  for (auto& step : program.steps) visit_step(step, f);
}

}  // namespace integers

// Visits the integers of a graph in a fixed order, sizes and strides of the inputs first.
template <class G, class F>
void visit_integers(G& graph, const F& f) {
  for (auto& input : graph.inputs) integers::visit_geometry(input, f);
  integers::visit_program(graph.forward, f);
  if (graph.backward) {
    if constexpr (std::is_const_v<G>)
      integers::visit_program(static_cast<const Program&>(*graph.backward), f);
    else
      integers::visit_program(*graph.backward, f);
  }
  for (auto& strides : graph.gradient_strides) integers::visit_all(strides, f);
}

}  // namespace fl::compiled
