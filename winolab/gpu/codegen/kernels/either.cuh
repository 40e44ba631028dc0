// One of two types, by a constant.
#pragma once

template <bool, class Then, class Else>
struct Either {
  using type = Then;
};
template <class Then, class Else>
struct Either<false, Then, Else> {
  using type = Else;
};
