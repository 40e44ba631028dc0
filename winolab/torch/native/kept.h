// The calls that are kept, found by what is asked and how tensors lie, and run.

#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/profiler/api.h>

#include "tape.h"

namespace winolab {

using Numbers = c10::SmallVector<int64_t, 48>;
constexpr size_t MOST = 8192;  // entries, as of winolab/calls.py; with more, all are forgotten

// Throw what Python's function that has failed says, which may have to go from thread to thread.
[[noreturn]] inline void raise() {
  python_error error;
  error.persist();
  throw error;
}

// A call that is kept: its result, its workspace and, from its first use on, its launches.
struct Entry {
  pybind11::object call;  // winolab.gpu.runtime.call.Call
  std::vector<int64_t> sizes, strides;
  c10::ScalarType dtype;
  int64_t workspace;
  int64_t index;
  std::unique_ptr<Tape> tape;
  bool full = false;  // its workspace did not fit into memory: the call is Python's from then on
};

struct State {
  std::vector<Word> plain;                                 // sets of keys of tensors
  std::map<std::pair<Word, Word>, unsigned> casting;       // a thread's: 1 casts on CPUs, 2 on GPUs
  PyObject *make_current = nullptr, *stream_of = nullptr;  // of a device's index
  PyObject* gradient = nullptr;
  PyObject* questions = nullptr;     // arguments -> their number
  std::vector<PyObject*> arguments;  // by their number
};

struct Hash {
  size_t operator()(const Numbers& numbers) const {
    size_t found = 1469598103934665603ull;
    for (int64_t each : numbers) found = (found ^ static_cast<size_t>(each)) * 1099511628211ull;
    return found;
  }
};

inline State& state = *new State;  // neither is destroyed, which Python would have to outlive
inline auto& entries = *new std::unordered_map<Numbers, std::shared_ptr<Entry>, Hash>;

inline void add_tensor(Numbers& key, const at::Tensor& v) {
  key.append(v.sizes().begin(), v.sizes().end());
  key.append(v.strides().begin(), v.strides().end());
  key.push_back(static_cast<int64_t>(v.scalar_type()));
  key.push_back(v.is_cuda() ? v.get_device() : -1);
  key.push_back(static_cast<int64_t>(reinterpret_cast<Word>(v.data_ptr()) % 16));
}

// What a module in evaluation takes for its weight, of a version: the weight, as autocast casts it,
// or transformed; by what is asked and how the other operand lies.
struct Filter {
  std::shared_ptr<Entry> entry;
  Word address;
  pybind11::object owner;  // of the memory; none where that is the weight's, which may lead here
};
struct Filters {
  c10::weak_intrusive_ptr<c10::TensorImpl> weight;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // whose address another gets once it is gone
  uint32_t version;
  Numbers lies;
  std::unordered_map<Numbers, Filter, Hash> by;

  explicit Filters(const at::Tensor& w)
      : weight(w.getIntrusivePtr()), storage(w.storage().getWeakStorageImpl()),
        version(w._version()), lies(lie(w)) {}
  bool of(const at::Tensor& w) const {
    return weight._unsafe_get_target() == w.unsafeGetTensorImpl() && version == w._version() &&
           !weight.expired() && !storage.expired() && lies == lie(w);
  }

 private:
  // Data that is put in the place of a weight's counts no version.
  static Numbers lie(const at::Tensor& w) {
    Numbers found{static_cast<int64_t>(reinterpret_cast<Word>(w.const_data_ptr()))};
    add_tensor(found, w);
    return found;
  }
};
constexpr const char* FILTERS = "winolab_calls.Filters";
constexpr size_t SHAPES = 8;  // as of winolab/torch/kept.py

// The number of arguments; -1 for those without a hash, and for new ones unless they are to get one.
inline int64_t number_of(PyObject* arguments, bool anew = false) {
  PyObject* known = PyDict_GetItemWithError(state.questions, arguments);
  if (known) return PyLong_AsLongLong(known);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return -1;
  }
  if (!anew) return -1;
  auto number = static_cast<int64_t>(state.arguments.size());
  PyObject* value = PyLong_FromLongLong(number);
  if (!value || PyDict_SetItem(state.questions, arguments, value) < 0) raise();
  Py_DECREF(value);
  Py_INCREF(arguments);
  state.arguments.push_back(arguments);
  return number;
}

inline Numbers question(int direction, int operand, int64_t arguments) {
  return {direction * 8 + operand + 1, arguments};
}

inline std::shared_ptr<Entry> find(const Numbers& key) {
  auto found = entries.find(key);
  return found == entries.end() ? nullptr : found->second;
}

// Whether nothing but gradients and autocast looks on at a call of these, and if autocast does.
inline bool is_plain(std::initializer_list<const at::Tensor*> tensors, bool& casts) {
  for (const at::Tensor* each : tensors) {
    Word keys = each->key_set().raw_repr();
    if (std::find(state.plain.begin(), state.plain.end(), keys) == state.plain.end()) return false;
    if (each->_fw_grad(0).defined()) return false;  // a tangent: compiled code tells Python no level
  }
  if (at::impl::PythonTorchFunctionTLS::stack_len() || torch::profiler::impl::profilerEnabled())
    return false;
  auto local = c10::impl::tls_local_dispatch_key_set();
  auto found = state.casting.find({local.included_.raw_repr(), local.excluded_.raw_repr()});
  if (found == state.casting.end()) return false;
  casts = found->second >> (*tensors.begin())->is_cuda() & 1;
  return true;
}

inline Word integer(PyObject* value) {
  Word found = PyLong_AsUnsignedLongLongMask(value);
  if (PyErr_Occurred()) raise();
  return found;
}

// A call's launches for these addresses, from its method `tape`.
inline std::unique_ptr<Tape> taped(const pybind11::object& call, const Where& where) {
  using pybind11::object;
  auto made = std::make_unique<Tape>();
  auto found = pybind11::reinterpret_steal<object>(PyObject_CallMethod(
      call.ptr(), "tape", "KKKKK", where[0], where[1], where[2], where[3], where[4]));
  if (!found) raise();
  made->owner = found.attr("owner");
  for (pybind11::handle each : found.attr("launches")) {
    Launch launch{reinterpret_cast<void*>(integer(PyTuple_GET_ITEM(each.ptr(), 0))), {}};
    for (pybind11::handle place : each[pybind11::int_(1)])
      launch.arguments.push_back(reinterpret_cast<const Word*>(integer(place.ptr())));
    made->launches.push_back(std::move(launch));
  }
  for (pybind11::handle each : found.attr("patches")) {
    PyObject* patch = each.ptr();
    auto* place = reinterpret_cast<void*>(integer(PyTuple_GET_ITEM(patch, 1)));
    made->patches.push_back({static_cast<int>(integer(PyTuple_GET_ITEM(patch, 0))), place,
                             integer(PyTuple_GET_ITEM(patch, 2)), integer(PyTuple_GET_ITEM(patch, 3)) != 0});
  }
  for (pybind11::handle each : found.attr("streams"))
    made->streams.push_back(reinterpret_cast<Word*>(integer(each.ptr())));
  Word replace = integer(found.attr("replace").ptr());
  made->replace = reinterpret_cast<int (*)(void*, Word)>(replace);
  made->held = where;
  return made;
}

inline thread_local std::array<bool, 64> has_context{};

// Give this thread the device's context, and the stream that is current there.
inline Word stream_on(int64_t index) {
  PyObject* number = PyLong_FromLongLong(index);
  if (!number) raise();
  auto held = pybind11::reinterpret_steal<pybind11::object>(number);
  if (index >= static_cast<int64_t>(has_context.size()) || !has_context[index]) {
    PyObject* done = PyObject_CallOneArg(state.make_current, number);
    if (!done) raise();
    Py_DECREF(done);
    if (index < static_cast<int64_t>(has_context.size())) has_context[index] = true;
  }
  PyObject* stream = PyObject_CallOneArg(state.stream_of, number);
  if (!stream) raise();
  Word found = integer(stream);
  Py_DECREF(stream);
  return found;
}

// The result of a kept call, of an operand and of what lies at an address; called with the GIL.
// Undefined where memory does not suffice: Python plans again with less, or says so better.
inline at::Tensor run(Entry& entry, const at::Tensor& a, Word b) {
  if (entry.full) return {};
  c10::DeviceGuard device(a.device());
  Where where{stream_on(entry.index), reinterpret_cast<Word>(a.data_ptr()), b, 0, 0};
  at::Tensor result, workspace;
  int status = 0, failed = 0;
  bool lacks = false;
  Tape* tape = entry.tape.get();  // which stays, once it is there
  {
    pybind11::gil_scoped_release release;
    at::AutoDispatchBelowADInplaceOrView below;
    auto options = at::TensorOptions().device(a.device());
    try {
      result = at::empty_strided(entry.sizes, entry.strides, options.dtype(entry.dtype));
      if (entry.workspace) workspace = at::empty({entry.workspace}, options.dtype(at::kByte));
    } catch (const c10::OutOfMemoryError&) {
      lacks = true;
    }
    if (!lacks) {
      where[3] = reinterpret_cast<Word>(result.data_ptr());
      if (entry.workspace) where[4] = reinterpret_cast<Word>(workspace.data_ptr());
      if (tape) status = tape->replay(where, failed);
    }
  }
  if (lacks) {
    entry.full = result.defined();
    return {};
  }
  if (!tape) {
    auto made = taped(entry.call, where);  // Python, meanwhile, may let another thread do the same
    if (!entry.tape) entry.tape = std::move(made);
    tape = entry.tape.get();
    pybind11::gil_scoped_release release;
    status = tape->replay(where, failed);
  }
  if (status) {
    PyObject* owner = tape->owner.ptr();
    PyObject* raised = PyObject_CallMethod(owner, "failed", "ii", failed, status);
    Py_XDECREF(raised);
    if (raised) PyErr_Format(PyExc_RuntimeError, "the driver's status is %d", status);
    raise();
  }
  return result;
}

}  // namespace winolab
