// The operators as PyTorch's dispatcher calls them, for code that torch.compile makes: calls that
// are kept are found without Python, others go to the operators' kernels in Python.

#pragma once

#include <string>
#include <unordered_map>

#include <ATen/core/stack.h>
#include <torch/csrc/Dtype.h>
#include <torch/library.h>

#include "kept.h"

namespace winolab {

constexpr const char* OPERATORS[] = {"conv_forward", "conv_backward_data", "conv_backward_filter"};
constexpr size_t OPERANDS = 2;

// Direction and arguments, all that the schema has, as one text -> the arguments' number; with the
// GIL, as all that is kept.
inline auto& texts = *new std::unordered_map<std::string, int64_t>;

inline c10::OperatorHandle operator_of(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("winolab::" + name).c_str(), "");
}

inline void write(std::string& text, int64_t value) {
  text.push_back('i');
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void write(std::string& text, std::string_view value) {
  write(text, static_cast<int64_t>(value.size()));
  text.append(value);
}

// Whether it could be written: symbols cannot.
inline bool write(std::string& text, const c10::IValue& value) {
  if (value.isInt()) {
    write(text, value.toInt());
  } else if (value.isNone()) {
    text.push_back('n');
  } else if (value.isString()) {
    write(text, std::string_view(value.toStringRef()));
  } else if (value.isList()) {
    text.push_back('(');
    for (const c10::IValue& each : value.toListRef())
      if (!write(text, each)) return false;
    text.push_back(')');
  } else {
    return false;
  }
  return true;
}

inline bool write(std::string& text, PyObject* value) {
  if (value == Py_None) {
    text.push_back('n');
  } else if (THPDtype_Check(value)) {
    write(text, static_cast<int64_t>(reinterpret_cast<THPDtype*>(value)->scalar_type));
  } else if (PyLong_Check(value)) {
    write(text, static_cast<int64_t>(PyLong_AsLongLong(value)));
  } else if (PyUnicode_Check(value)) {
    Py_ssize_t size;
    const char* found = PyUnicode_AsUTF8AndSize(value, &size);
    if (!found) raise();
    write(text, std::string_view(found, size));
  } else if (PyTuple_Check(value)) {
    text.push_back('(');
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
      if (!write(text, PyTuple_GET_ITEM(value, i))) return false;
    text.push_back(')');
  } else {
    return false;
  }
  return true;
}

// Let the operator's calls with these arguments, a tuple without the usual ones at its end, be
// found by their number.
inline void name_arguments(int direction, PyObject* arguments, int64_t number) {
  auto handle = operator_of(OPERATORS[direction]);
  const auto& schema = handle.schema().arguments();
  std::string text(1, static_cast<char>('0' + direction));
  auto given = static_cast<size_t>(PyTuple_GET_SIZE(arguments));
  for (size_t i = 0; i + OPERANDS < schema.size(); ++i) {
    if (i < given) {
      if (!write(text, PyTuple_GET_ITEM(arguments, i))) return;
    } else {
      const auto& usual = schema[i + OPERANDS].default_value();
      if (!usual || !write(text, *usual)) return;
    }
  }
  texts[std::move(text)] = number;
}

// The number of arguments on a stack behind the operands, -1 where none is known.
inline int64_t number_on(int direction, c10::ArrayRef<c10::IValue> given) {
  std::string text(1, static_cast<char>('0' + direction));
  for (const c10::IValue& each : given.slice(OPERANDS))
    if (!write(text, each)) return -1;
  auto found = texts.find(text);
  return found == texts.end() ? -1 : found->second;
}

}  // namespace winolab
