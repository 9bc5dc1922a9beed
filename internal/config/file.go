package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/version"

	"spillway/internal/domain"
	"spillway/internal/rotation"
)

// The first two keys of a configuration file say which keys follow, as in the configuration files
// of Kubernetes components.
const (
	apiVersionKey = "apiVersion"
	fileGroup     = "config." + domain.Domain
	fileVersion   = "v1alpha1"
	apiVersion    = fileGroup + "/" + fileVersion

	kindKey  = "kind"
	fileKind = "SpillwayConfiguration"
)

// fileHeader is what every configuration file has, in this order.
var fileHeader = []struct{ key, value string }{{apiVersionKey, apiVersion}, {kindKey, fileKind}}

// fileEntry is one key of a configuration file.
type fileEntry struct {
	path  string
	line  int
	key   string
	value *yaml.Node
}

// place is where the entry is, as conf.yaml:3.
func (e fileEntry) place() string { return fmt.Sprintf("%s:%d", e.path, e.line) }

// readConfigFile returns the entries of a YAML file in their order, each key once. Errors about its
// contents name the file and the line. It decodes into nodes and not into a struct, which would
// lose the lines and guess types: the text no would become false.
func readConfigFile(path string) ([]fileEntry, error) {
	text, err := rotation.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseConfigFile(path, text)
}

func parseConfigFile(path string, text []byte) ([]fileEntry, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, notYAML(path, err)
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second YAML document begins here; keep one", path, second.Line)
	case !errors.Is(err, io.EOF):
		return nil, notYAML(path, err)
	}
	return entriesOf(path, doc.Content[0])
}

// notYAML is the error for a text that is not YAML, with the line if the library knows it.
func notYAML(path string, err error) error {
	line, problem := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if found := yamlLine.FindStringSubmatch(problem); found != nil {
		line, _ = strconv.Atoi(found[1])
		problem = found[2]
	}
	if countedFromZero.MatchString(problem) {
		line++
	}
	place := path
	if line > 0 {
		place = fmt.Sprintf("%s:%d", path, line)
	}
	return fmt.Errorf("%s: not valid YAML: %s; write lines of the form `key: value`, as spillway config print does",
		place, problem)
}

var (
	yamlLine = regexp.MustCompile(`^line (\d+): (.*)$`)
	// countedFromZero finds errors of yaml's parser, which counts lines from 0. Its scanner counts
	// from 1.
	countedFromZero = regexp.MustCompile(`^did not find expected (<|node|key|'-'|',')`)
)

func entriesOf(path string, root *yaml.Node) ([]fileEntry, error) {
	if isNull(root) {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: must be lines of the form `key: value`, as spillway config print writes them",
			path, root.Line)
	}
	var entries []fileEntry
	lineOf := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := resolve(root.Content[i])
		e := fileEntry{path, root.Content[i].Line, key.Value, resolve(root.Content[i+1])}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s: a key must be a name, such as historyBytes", e.place())
		}
		if first, twice := lineOf[e.key]; twice {
			return nil, fmt.Errorf("%s: %s: given twice, first in line %d; keep one", e.place(), e.key, first)
		}
		lineOf[e.key] = e.line
		entries = append(entries, e)
	}
	return entries, nil
}

// resolve is the node that an alias names, or the node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// readEntries sets the flags that neither command line nor environment has set from the entries of
// a file.
func (o *Settings) readEntries(path string, entries []fileEntry) error {
	for _, field := range fileHeader {
		if err := o.checkHeader(path, entries, field.key, field.value); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.key == apiVersionKey || e.key == kindKey {
			continue
		}
		at := slices.IndexFunc(o.rows, func(s *setting) bool { return e.key != "" && e.key == s.key() })
		if at < 0 {
			return fmt.Errorf("%s: %s: %w", e.place(), e.key, o.unknownKey(e.key))
		}
		if err := o.setEntry(o.rows[at], e); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader refuses a file in which a key of the header is missing or has another value.
func (o *Settings) checkHeader(path string, entries []fileEntry, key, wanted string) error {
	at := slices.IndexFunc(entries, func(e fileEntry) bool { return e.key == key })
	if at < 0 {
		for _, e := range entries {
			if !slices.Contains(o.keys(), e.key) && nearest(e.key, []string{key}) != "" {
				return fmt.Errorf("%s: %s: no such setting; did you mean %s?", e.place(), e.key, key)
			}
		}
		return fmt.Errorf("%s:1: %s: is missing; begin the file with `%s: %s`", path, key, key, wanted)
	}
	e := entries[at]
	switch {
	case !isText(e.value):
		return fmt.Errorf("%s: %s: must be %s", e.place(), key, wanted)
	case e.value.Value == wanted:
		return nil
	}
	remedy := "must be " + wanted
	if found := versionOfGroup.FindStringSubmatch(e.value.Value); found != nil {
		remedy = "is older than " + fileVersion + ", which this spillway reads; translate the file, as CHANGELOG.md shows"
		if version.CompareKubeAwareVersionStrings(found[1], fileVersion) > 0 {
			remedy = "is newer than " + fileVersion + ", which this spillway reads; upgrade spillway, or write the file for " +
				fileVersion
		}
	}
	return fmt.Errorf("%s: %s: %s: %s", e.place(), key, shown(e.value), remedy)
}

// versionOfGroup finds the version in the apiVersion of a file that is for another version.
var versionOfGroup = regexp.MustCompile(`^` + regexp.QuoteMeta(fileGroup) + `/(v[0-9]+(?:(?:alpha|beta)[0-9]+)?)$`)

// keys are all keys of a configuration file.
func (o *Settings) keys() []string {
	keys := []string{apiVersionKey, kindKey}
	for _, s := range o.rows {
		if key := s.key(); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// unknownKey is an error about a key that a file cannot have. It names the key that was meant, if
// the name is that of a flag or a variable, or is nearly a key.
func (o *Settings) unknownKey(given string) error {
	if given == fileless {
		return errors.New("a configuration file cannot name another; remove the line")
	}
	for _, s := range o.rows {
		if s.key() != "" && (given == s.name || given == s.variable()) {
			return fmt.Errorf("no such setting; in a configuration file it is %s", s.key())
		}
	}
	if near := nearest(given, o.keys()); near != "" {
		return fmt.Errorf("no such setting; did you mean %s?", near)
	}
	return errors.New("no such setting; spillway config print lists all")
}
