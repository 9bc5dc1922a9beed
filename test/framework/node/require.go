package node

import (
	"os"
	"testing"
)

// capable is a variable of the environment by which CI says that its machine can run nodes.
const capable = "REQUIRE_NODE"

// Require skips a test where no node can be started, and fails it where one must be.
func Require(t *testing.T) {
	t.Helper()
	err := Missing()
	switch {
	case err == nil:
	case os.Getenv(capable) != "":
		t.Fatalf("%s is set, but: %v", capable, err)
	default:
		t.Skip(err)
	}
}
