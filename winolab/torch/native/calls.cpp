// Calls of plain tensors that were made before, past Python: what winolab/torch/plain.py finds by
// one look is found here. Whatever is not found, or is anything but plain, gets None, and Python
// goes on as without this.

#include <ATen/autocast_mode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/version.h>

// Nodes say what compiled autograd asks in other words before.
#define COMPILED_AUTOGRAD (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)
#if COMPILED_AUTOGRAD
#include <torch/csrc/dynamo/compiled_autograd.h>
#endif

#include "dispatched.h"
#include "kept.h"

namespace {

using namespace winolab;
using torch::autograd::variable_list;

// What each operand's gradient takes, as GRADIENTS of winolab/torch/derivatives.py has it: 0 and 1
// are the operands, 2 is the gradient of the result.
constexpr int GRADIENTS[3][2][2] = {{{2, 1}, {0, 2}}, {{2, 1}, {2, 0}}, {{1, 2}, {0, 2}}};

// ---- Gradients ---------------------------------------------------------------------------------

at::Tensor unwrapped(PyObject* found) {
  if (!found) raise();
  auto held = pybind11::reinterpret_steal<pybind11::object>(found);
  return THPVariable_Check(found) ? THPVariable_Unpack(found) : at::Tensor();
}

// Of a plain convolution; what it does not know it asks Python for, which tells it for next time.
struct ConvolutionBackward : torch::autograd::Node {
  torch::autograd::SavedVariable a, b;
  int direction = 0;
  int64_t arguments = 0;

  variable_list apply(variable_list&& grads) override {
    variable_list found(2);
    if (!grads[0].defined()) return found;
    std::array<at::Tensor, 3> arrays;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      arrays = {a.unpack(), b.unpack(), grads[0]};
    }
    if (arrays[2].scalar_type() != arrays[0].scalar_type())
      arrays[2] = arrays[2].to(arrays[0].scalar_type());
    pybind11::gil_scoped_acquire acquire;
    bool casts = true;
    bool quick = !at::GradMode::is_enabled() &&
                 is_plain({&arrays[0], &arrays[1], &arrays[2]}, casts) && !casts;
    for (int operand = 0; operand < 2; ++operand)
      if (task_should_compute_output(operand)) found[operand] = gradient(operand, arrays, quick);
    return found;
  }

  at::Tensor gradient(int operand, const std::array<at::Tensor, 3>& arrays, bool quick) {
    if (quick) {
      const auto& places = GRADIENTS[direction][operand];
      const at::Tensor &first = arrays[places[0]], &second = arrays[places[1]];
      Numbers key = question(direction, operand, arguments);
      auto shape = arrays[operand].sizes();
      key.append(shape.begin(), shape.end());
      add_tensor(key, first);
      add_tensor(key, second);
      if (auto entry = find(key)) {
        at::Tensor made = run(*entry, first, reinterpret_cast<Word>(second.data_ptr()));
        if (made.defined()) return made;
      }
    }
    using pybind11::object;
    std::array<object, 3> wrapped;
    for (int i = 0; i < 3; ++i)
      wrapped[i] = pybind11::reinterpret_steal<object>(THPVariable_Wrap(arrays[i]));
    return unwrapped(PyObject_CallFunction(state.gradient, "iiOOOO", direction, operand,
                                           wrapped[0].ptr(), wrapped[1].ptr(), wrapped[2].ptr(),
                                           state.arguments[arguments]));
  }

#if COMPILED_AUTOGRAD
  // What compiled autograd's graph depends on beside the gradients of the result.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    args.collect(static_cast<int64_t>(direction));
    args.collect(arguments);
    args.collect(a, false);
    args.collect(b, false);
  }

  // The operators that compute the gradients, of tensors that stand for those that were saved.
  variable_list apply_with_saved(const variable_list& grads,
                                 torch::dynamo::autograd::SwapSavedVariables& saved) override {
    saved.before(a);
    saved.before(b);
    variable_list found = apply(variable_list(grads));
    saved.after(a);
    saved.after(b);
    return found;
  }
#endif

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    a.reset_data();
    b.reset_data();
  }

  std::string name() const override { return "ConvolutionBackward"; }
};

// A node as this PyTorch holds it: since 2.13 nodes count themselves who holds them.
template <typename N>
auto new_node() {
  using torch::autograd::Edge, torch::autograd::Node;
  if constexpr (std::is_same_v<decltype(Edge::function), std::shared_ptr<Node>>)
    return std::shared_ptr<N>(new N, [](N* node) { deleteNode(node); });
  else
    return c10::make_intrusive<N>();
}

at::Tensor cast(const at::Tensor& v, at::ScalarType to, at::DeviceType device) {
  bool eligible = at::isFloatingType(v.scalar_type()) && v.scalar_type() != at::kDouble;
  if (v.scalar_type() == to || !eligible || v.device().type() != device) return v;
  pybind11::gil_scoped_release release;
  return v.to(to);
}

Numbers filter_key(int direction, int64_t arguments, at::ScalarType dtype, const at::Tensor& a) {
  Numbers key = question(direction, 3, arguments);
  key.push_back(static_cast<int64_t>(dtype));
  add_tensor(key, a);
  return key;
}

bool records(const at::Tensor& a, const at::Tensor& b) {
  return at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() &&
         (a.requires_grad() || b.requires_grad());
}

// The result of a call that is kept, gradients ``recorded``; undefined where it is not known.
at::Tensor plainly(int direction, int64_t arguments, const at::Tensor& a, const at::Tensor& b,
                   bool recorded) {
  Numbers key = question(direction, -1, arguments);
  add_tensor(key, a);
  add_tensor(key, b);
  auto entry = find(key);
  if (!entry) return {};
  at::Tensor result = run(*entry, a, reinterpret_cast<Word>(b.data_ptr()));
  if (result.defined() && recorded) {
    using torch::autograd::SavedVariable;
    auto node = new_node<ConvolutionBackward>();
    node->direction = direction;
    node->arguments = arguments;
    node->a = SavedVariable(a, false);
    node->b = SavedVariable(b, false);
    node->set_next_edges(torch::autograd::collect_next_edges(a, b));
    auto place = static_cast<uint32_t>(node->add_input_metadata(result));
    torch::autograd::impl::set_gradient_edge(result, torch::autograd::Edge(node, place));
  }
  return result;
}

// ---- The dispatcher ----------------------------------------------------------------------------

// The result of an operator's call, undefined where it is not known. What autocast casts, its own
// kernel has cast.
at::Tensor known(int direction, c10::ArrayRef<c10::IValue> given) {
  const at::Tensor &a = given[0].toTensor(), &b = given[1].toTensor();
  pybind11::gil_scoped_acquire acquire;
  bool casts = false;
  if (!is_plain({&a, &b}, casts) || casts) return {};
  int64_t arguments = number_on(direction, given);
  if (arguments < 0) return {};
  try {
    return plainly(direction, arguments, a, b, records(a, b));
  } catch (python_error& error) {  // which not every caller of an operator knows
    error.restore();
    throw pybind11::error_already_set();
  }
}

template <int direction>
void dispatched(const c10::OperatorHandle& called, c10::DispatchKeySet keys,
                torch::jit::Stack* stack) {
  size_t count = called.schema().arguments().size();
  at::Tensor result = known(direction, torch::jit::last(*stack, count));
  if (result.defined()) {
    torch::jit::drop(*stack, count);
    stack->emplace_back(std::move(result));
    return;
  }
  static const auto unknown = operator_of(OPERATORS[direction] + std::string("_unknown"));
  unknown.redispatchBoxed(keys, stack);
}

constexpr const char* LIBRARY = "winolab_calls.Library";

void withdraw(PyObject* library) {
  delete static_cast<torch::Library*>(PyCapsule_GetPointer(library, LIBRARY));
}

// dispatch(key): the operators' kernels for that key, as long as the result is held.
PyObject* dispatch(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 1 && PyUnicode_Check(given[0]), "dispatch takes a key's name");
  auto key = c10::parseDispatchKey(PyUnicode_AsUTF8(given[0]));
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "winolab", key, __FILE__,
                                                  __LINE__);
  using torch::CppFunction;
  library->impl(OPERATORS[0], CppFunction::makeFromBoxedFunction<&dispatched<0>>());
  library->impl(OPERATORS[1], CppFunction::makeFromBoxedFunction<&dispatched<1>>());
  library->impl(OPERATORS[2], CppFunction::makeFromBoxedFunction<&dispatched<2>>());
  PyObject* held = PyCapsule_New(library.get(), LIBRARY, withdraw);
  if (!held) raise();
  library.release();
  return held;
  END_HANDLE_TH_ERRORS
}

// ---- Python's functions ------------------------------------------------------------------------

// call(direction, arguments, a, b, filters): the result, gradients recorded, or None; ``filters``
// is what ``hold`` made for b, or False where that is to come, which counts where nothing is
// recorded; or None.
PyObject* call(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 5 || !THPVariable_CheckExact(given[2]) || !THPVariable_CheckExact(given[3]))
    Py_RETURN_NONE;
  int direction = static_cast<int>(PyLong_AsLong(given[0]));
  at::Tensor a = THPVariable_Unpack(given[2]), b = THPVariable_Unpack(given[3]);
  bool casts = false;
  if (!is_plain({&a, &b}, casts)) Py_RETURN_NONE;
  int64_t arguments = number_of(given[1]);
  if (arguments < 0) Py_RETURN_NONE;
  const at::Tensor weight = b;
  bool recorded = records(a, b);
  auto to = casts ? at::autocast::get_autocast_dtype(a.device().type()) : b.scalar_type();
  if (given[4] == Py_False && !recorded) Py_RETURN_NONE;
  if (casts) a = cast(a, to, a.device().type());
  if (given[4] != Py_None && !recorded) {
    auto* filters = static_cast<Filters*>(PyCapsule_GetPointer(given[4], FILTERS));
    if (!filters) raise();
    if (weight.is_inference() || !filters->of(weight)) Py_RETURN_NONE;
    auto found = filters->by.find(filter_key(direction, arguments, to, a));
    if (found == filters->by.end()) Py_RETURN_NONE;
    Filter filter = found->second;
    at::Tensor result = run(*filter.entry, a, filter.address);
    if (!result.defined()) Py_RETURN_NONE;
    return THPVariable_Wrap(std::move(result));
  }
  if (casts) b = cast(b, to, a.device().type());
  at::Tensor result = plainly(direction, arguments, a, b, recorded);
  if (!result.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

void forget(PyObject* filters) {
  delete static_cast<Filters*>(PyCapsule_GetPointer(filters, FILTERS));
}

// hold(filters, direction, arguments, a, w, dtype, filter, number, address): what ``call`` takes
// for w from now on, of that dtype: ``filter``, a tensor, or a Transformed with that number and
// address.
// Returns ``filters``, or new ones where they are None or not of w as it is, or None where ``keep``
// was not told of the call.
PyObject* hold(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 9 && THPDtype_Check(given[5]), "hold takes 9 arguments");
  int64_t arguments = number_of(given[2]);
  if (arguments < 0) Py_RETURN_NONE;
  int direction = static_cast<int>(PyLong_AsLong(given[1]));
  const at::Tensor &a = THPVariable_Unpack(given[3]), &w = THPVariable_Unpack(given[4]);
  bool is_tensor = THPVariable_Check(given[6]);
  Numbers key = question(direction, is_tensor ? -1 : 2, arguments);
  if (!is_tensor) key.push_back(PyLong_AsLongLong(given[7]));
  add_tensor(key, a);
  Word address;
  if (is_tensor) {
    const at::Tensor& b = THPVariable_Unpack(given[6]);
    add_tensor(key, b);
    address = reinterpret_cast<Word>(b.data_ptr());
  } else {
    address = integer(given[8]);
  }
  auto entry = find(key);
  if (!entry || w.is_inference()) Py_RETURN_NONE;
  PyObject* held = given[0];
  auto* filters =
      held == Py_None ? nullptr : static_cast<Filters*>(PyCapsule_GetPointer(held, FILTERS));
  if (filters && filters->of(w)) {
    Py_INCREF(held);
  } else {
    filters = new Filters(w);
    held = PyCapsule_New(filters, FILTERS, forget);
    if (!held) raise();
  }
  if (filters->by.size() >= SHAPES) filters->by.clear();
  auto dtype = reinterpret_cast<THPDtype*>(given[5])->scalar_type;
  auto owner = pybind11::reinterpret_borrow<pybind11::object>(given[6]);
  if (given[6] == given[4]) owner = pybind11::none();
  filters->by[filter_key(direction, arguments, dtype, a)] = {entry, address, owner};
  return held;
  END_HANDLE_TH_ERRORS
}

void add_numbers(Numbers& key, PyObject* values) {
  for (pybind11::handle each : pybind11::handle(values)) {
    if (THPDtype_Check(each.ptr()))
      key.push_back(static_cast<int64_t>(reinterpret_cast<THPDtype*>(each.ptr())->scalar_type));
    else if (PyLong_Check(each.ptr()))
      key.push_back(PyLong_AsLongLong(each.ptr()));
    else
      add_numbers(key, each.ptr());
  }
}

// keep(direction, operand, arguments, numbers, call, sizes, strides, dtype, workspace, index):
// `operand` is -1 for the operator itself, 0 or 1 for a gradient, 2 for one by a kept filter;
// `numbers` follow in the key as add_tensor writes them.
PyObject* keep(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 10, "keep takes 10 arguments");
  int64_t arguments = number_of(given[2], true);
  if (arguments < 0) Py_RETURN_FALSE;
  int direction = static_cast<int>(PyLong_AsLong(given[0]));
  Numbers key = question(direction, static_cast<int>(PyLong_AsLong(given[1])), arguments);
  add_numbers(key, given[3]);
  Numbers sizes, strides;
  add_numbers(sizes, given[5]);
  add_numbers(strides, given[6]);
  TORCH_CHECK(THPDtype_Check(given[7]), "keep takes a dtype");
  auto call = pybind11::reinterpret_borrow<pybind11::object>(given[4]);
  auto made = std::make_shared<Entry>(Entry{
      call, {sizes.begin(), sizes.end()}, {strides.begin(), strides.end()},
      reinterpret_cast<THPDtype*>(given[7])->scalar_type, PyLong_AsLongLong(given[8]),
      PyLong_AsLongLong(given[9]), nullptr, false});
  if (PyErr_Occurred()) raise();
  if (entries.size() >= MOST) entries.clear();
  entries[std::move(key)] = std::move(made);
  if (PyLong_AsLong(given[1]) == -1) name_arguments(direction, given[2], arguments);
  Py_RETURN_TRUE;
  END_HANDLE_TH_ERRORS
}

// setup(plain, casting, make_current, stream_of, gradient): what plain.py knows of
// keys, and functions; forgets what was kept.
PyObject* setup(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 5, "setup takes 5 arguments");
  state.plain.clear();
  for (pybind11::handle each : pybind11::handle(given[0]))
    state.plain.push_back(integer(each.ptr()));
  state.casting.clear();
  PyObject *key, *value;
  for (Py_ssize_t i = 0; PyDict_Next(given[1], &i, &key, &value);)
    state.casting[{integer(PyTuple_GET_ITEM(key, 0)), integer(PyTuple_GET_ITEM(key, 1))}] =
        static_cast<unsigned>(integer(value));
  for (Py_ssize_t i = 2; i < 5; ++i) Py_INCREF(given[i]);
  state.make_current = given[2];
  state.stream_of = given[3];
  state.gradient = given[4];
  if (!state.questions) state.questions = PyDict_New();
  entries.clear();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* kept(PyObject*, PyObject*) { return PyLong_FromSize_t(entries.size()); }

template <typename F>
PyCFunction fast(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef METHODS[] = {
    {"call", fast(call), METH_FASTCALL, nullptr},
    {"dispatch", fast(dispatch), METH_FASTCALL, nullptr},
    {"hold", fast(hold), METH_FASTCALL, nullptr},
    {"keep", fast(keep), METH_FASTCALL, nullptr},
    {"setup", fast(setup), METH_FASTCALL, nullptr},
    {"kept", kept, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "winolab_calls", nullptr, -1, METHODS};

}  // namespace

PyMODINIT_FUNC PyInit_winolab_calls() { return PyModule_Create(&MODULE); }
