#include "src/serve/serve.h"

int main(int argc, char** argv) {
  return tandem::serve::Main(argc, argv);
}
