#include "src/daemon/daemon.h"

int main(int argc, char** argv) {
  return tandem::daemon::Main(argc, argv);
}
