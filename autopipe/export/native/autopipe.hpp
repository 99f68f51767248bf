// C++17 over autopipe.h: names, move-only handles, exceptions.
//
//   autopipe::Model model("squeezenet");
//   std::vector<float> image(3 * 224 * 224);
//   autopipe::Outputs outputs = model.run({autopipe::input("data_0", image)});
//   const float *scores = outputs["softmaxout_1"].data<float>();
//
//   std::vector<float> into(1000);
//   std::vector<autopipe_tensor> written{autopipe::output("softmaxout_1", into)};
//   model.run_into({autopipe::input("data_0", image)}, written);
#ifndef AUTOPIPE_HPP
#define AUTOPIPE_HPP

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "autopipe.h"

namespace autopipe {

class Error : public std::runtime_error {
 public:
  explicit Error(autopipe_status status) : std::runtime_error(autopipe_last_error()), status(status) {}
  const autopipe_status status;
};

inline void check(autopipe_status status) {
  if (status != AUTOPIPE_OK) throw Error(status);
}

template <typename T>
constexpr autopipe_dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return AUTOPIPE_BOOL;
  else if constexpr (std::is_same_v<T, float>) return AUTOPIPE_FLOAT32;
  else if constexpr (std::is_same_v<T, double>) return AUTOPIPE_FLOAT64;
  else {
    static_assert(std::is_integral_v<T>, "no dtype of a model");
    constexpr int place = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<autopipe_dtype>((std::is_signed_v<T> ? AUTOPIPE_INT8 : AUTOPIPE_UINT8) + place);
  }
}

// An input over memory of the caller, which has to stay until the call has ended. `shape` is only needed for
// dynamic dimensions.
template <typename T>
autopipe_tensor input(const char *name, const T *data, std::size_t count, std::initializer_list<std::int64_t> shape = {}) {
  autopipe_tensor made{};
  made.name = name;
  made.dtype = dtype_of<T>();
  made.data = const_cast<T *>(data);
  made.bytes = count * sizeof(T);
  if (shape.size() > AUTOPIPE_MAX_RANK) throw std::invalid_argument("more dimensions than AUTOPIPE_MAX_RANK");
  for (std::int64_t size : shape) made.shape[made.rank++] = size;
  return made;
}

template <typename T>
autopipe_tensor input(const char *name, const std::vector<T> &data, std::initializer_list<std::int64_t> shape = {}) {
  return input(name, data.data(), data.size(), shape);
}

// An output over memory of the caller, for `run_into`.
template <typename T>
autopipe_tensor output(const char *name, T *data, std::size_t count) {
  autopipe_tensor made{};
  made.name = name;
  made.data = data;
  made.bytes = count * sizeof(T);
  return made;
}

template <typename T>
autopipe_tensor output(const char *name, std::vector<T> &data) {
  return output(name, data.data(), data.size());
}

// An output of a call, in memory of the runtime.
class Output {
 public:
  explicit Output(const autopipe_tensor &tensor) : tensor_(tensor) {}
  Output(Output &&other) noexcept : tensor_(std::exchange(other.tensor_, {})) {}
  Output &operator=(Output &&other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Output() { autopipe_release(&tensor_); }

  std::string name() const { return tensor_.name; }
  autopipe_dtype dtype() const { return tensor_.dtype; }
  std::vector<std::int64_t> shape() const { return {tensor_.shape, tensor_.shape + tensor_.rank}; }
  std::size_t size() const { return tensor_.bytes / autopipe_dtype_bytes(tensor_.dtype); }
  template <typename T>
  const T *data() const {
    if (dtype_of<T>() != tensor_.dtype) throw std::invalid_argument(name() + " is " + autopipe_dtype_name(tensor_.dtype));
    return static_cast<const T *>(tensor_.data);
  }

 private:
  autopipe_tensor tensor_;
};

class Outputs : public std::vector<Output> {
 public:
  const Output &operator[](const std::string &name) const {
    for (const Output &one : *this)
      if (one.name() == name) return one;
    throw std::out_of_range("no output " + name);
  }
};

class Model {
 public:
  explicit Model(const std::string &folder, autopipe_options options = {}) {
    options.size = sizeof options;
    check(autopipe_open(folder.c_str(), &options, &handle_));
  }
  Model(Model &&other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Model &operator=(Model &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Model() {
    if (handle_) autopipe_close(handle_);
  }

  std::vector<autopipe_port> inputs() const { return ports(autopipe_input_count, autopipe_input); }
  std::vector<autopipe_port> outputs() const { return ports(autopipe_output_count, autopipe_output); }

  Outputs run(const std::vector<autopipe_tensor> &inputs, std::int64_t limit_ms = AUTOPIPE_NO_LIMIT) {
    std::vector<autopipe_tensor> tensors;
    for (const autopipe_port &port : outputs()) {
      tensors.emplace_back();
      tensors.back().name = port.name;
    }
    check(autopipe_run(handle_, inputs.data(), inputs.size(), tensors.data(), tensors.size(), limit_ms));
    Outputs results;
    for (const autopipe_tensor &tensor : tensors) results.emplace_back(tensor);
    return results;
  }

  // Writes the outputs to memory of the caller, and sets the shape and bytes of each.
  void run_into(const std::vector<autopipe_tensor> &inputs, std::vector<autopipe_tensor> &outputs,
                std::int64_t limit_ms = AUTOPIPE_NO_LIMIT) {
    check(autopipe_run(handle_, inputs.data(), inputs.size(), outputs.data(), outputs.size(), limit_ms));
  }

  // A handle that keeps states between its calls: {{"state", "state_next"}}.
  Model stream(const std::vector<autopipe_state> &states) const {
    Model made;
    check(autopipe_open_stream(handle_, states.data(), states.size(), &made.handle_));
    return made;
  }
  void cancel() { check(autopipe_cancel(handle_)); }
  void reset() { check(autopipe_reset(handle_)); }
  autopipe_model handle() const { return handle_; }

 private:
  Model() = default;
  template <typename Count, typename Get>
  std::vector<autopipe_port> ports(Count count, Get get) const {
    std::size_t number = 0;
    check(count(handle_, &number));
    std::vector<autopipe_port> found(number);
    for (std::size_t i = 0; i < number; i++) check(get(handle_, i, &found[i]));
    return found;
  }
  autopipe_model handle_ = 0;
};

}  // namespace autopipe
#endif
