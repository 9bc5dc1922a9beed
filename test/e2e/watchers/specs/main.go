// Command specs runs Kubernetes' own conformance specs that a regular expression selects, such as
// "Watchers", against the cluster of a kubeconfig. It ends with 1 if one of them fails or none is
// selected.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	"k8s.io/kubernetes/test/e2e/framework"
)

func main() {
	focus := flag.String("focus", `\[sig-api-machinery\] Watchers`, "run the specs whose names match")
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	// There is no controller manager: nothing makes service accounts, and nothing empties namespaces.
	framework.TestContext.VerifyServiceAccount = false
	framework.TestContext.DeleteNamespace = false
	framework.TestContext.Provider = "skeleton"
	framework.AfterReadingAllFlags(&framework.TestContext)

	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{*focus}
	reporter.Succinct = true
	if !ginkgo.RunSpecs(failure{}, "Kubernetes' specs", suite, reporter) {
		os.Exit(1)
	}
}

// failure is what ginkgo tells of a failed suite beside what it prints.
type failure struct{}

// Fail implements ginkgo.GinkgoTestingT.
func (failure) Fail() { fmt.Fprintln(os.Stderr, "a spec failed") }
