// Command sbom prints a CycloneDX bill of materials of a Go program: what the program itself says
// it was built from. That is what was linked, for this platform; a go.mod names more. The same
// program gives the same bill: it has no time and no serial number.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "unknown",
		"the program's version, which Go does not know of one built from a checkout")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: sbom [-version v] program")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the bill of the program at path.
func run(w io.Writer, path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s is no Go program that tells what it was built from: %w", path, err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(program)
	b, err := bill(info, filepath.Base(path), version, hex.EncodeToString(digest[:]))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(b)
}

// bill is that of a program with this digest.
func bill(info *debug.BuildInfo, name, version, digest string) (*cyclonedx.BOM, error) {
	library := component("std", strings.TrimPrefix(info.GoVersion, "go"))
	components := []cyclonedx.Component{library}
	refs := []string{library.BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := component(module.Path, module.Version)
		if err := addSum(&c, module.Sum); err != nil {
			return nil, err
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	main := cyclonedx.Component{
		BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	b := cyclonedx.NewBOM()
	b.Metadata = &cyclonedx.Metadata{Component: &main}
	b.Components = &components
	b.Dependencies = &[]cyclonedx.Dependency{{Ref: name, Dependencies: &refs}}
	return b, nil
}

// component is a module as the package URL names it that vulnerability databases know.
func component(path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: url}
}

// addSum adds go.sum's digest of a module, h1: one of its files' digests, which is not that of any
// file. A replacement by a folder has none.
func addSum(c *cyclonedx.Component, sum string) error {
	if sum == "" {
		return nil
	}
	digest, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || len(digest) != sha256.Size {
		return fmt.Errorf("the sum %q of %s is not one of go.sum's h1 sums", sum, c.Name)
	}
	c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}}
	return nil
}
