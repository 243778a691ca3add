// Atomic access to words of memory that other processes share with us.
#ifndef VGPU_LIMITER_SHARED_WORD_H
#define VGPU_LIMITER_SHARED_WORD_H

namespace vgpu::limiter {

template <typename T>
T load(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_SEQ_CST);
}

template <typename T>
void store(T& word, T value) {
  __atomic_store_n(&word, value, __ATOMIC_SEQ_CST);
}

template <typename T>
void add(T& word, T value) {
  __atomic_fetch_add(&word, value, __ATOMIC_SEQ_CST);
}

// On failure `expected` is what was found.
template <typename T>
bool replace(T& word, T& expected, T value) {
  return __atomic_compare_exchange_n(&word, &expected, value, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}

// Takes away at most `value`; what was taken. A word that a tenant has spoilt never wraps.
template <typename T>
T subtract_saturating(T& word, T value) {
  T found = load(word);
  T taken = 0;
  do {
    taken = found < value ? found : value;
  } while (!replace(word, found, static_cast<T>(found - taken)));
  return taken;
}

}  // namespace vgpu::limiter

#endif
