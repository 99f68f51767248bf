// Opens each folder through autopipe.hpp and runs it on zeros of the smallest sizes; prints what it takes and returns.
#include <cstdio>
#include <vector>

#include "autopipe.hpp"

static autopipe_tensor zeros(const autopipe_port &port, std::vector<std::vector<char>> &memory) {
  autopipe_tensor made{};
  made.name = port.name, made.rank = port.rank, made.bytes = autopipe_dtype_bytes(port.dtype);
  for (int axis = 0; axis < port.rank; axis++) made.bytes *= made.shape[axis] = port.minimum[axis];
  memory.emplace_back(made.bytes + 1);
  made.data = memory.back().data();
  return made;
}

int main(int count, char **words) {
  for (int i = 1; i < count; i++) try {
      autopipe::Model model(words[i]);
      std::vector<std::vector<char>> memory;
      std::vector<autopipe_tensor> inputs;
      for (const autopipe_port &port : model.inputs()) inputs.push_back(zeros(port, memory));
      for (const autopipe::Output &output : model.run(inputs, 60000)) {
        std::printf("%s: %s [", output.name().c_str(), autopipe_dtype_name(output.dtype()));
        for (std::int64_t size : output.shape()) std::printf(" %lld", (long long)size);
        std::puts(" ]");
      }
      try {
        model.run({});
      } catch (const autopipe::Error &error) {
        std::printf("refused: %d %s\n", error.status, error.what());
      }
    } catch (const autopipe::Error &error) {
      std::printf("%s: %d %s\n", words[i], error.status, error.what());
      return 1;
    }
}
