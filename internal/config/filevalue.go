package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// setEntry sets the flag of a row, unless it is set already.
func (o *Settings) setEntry(s *setting, e fileEntry) error {
	f := o.flags.Lookup(s.name)
	if line, problem := s.misfit(f, e); problem != "" {
		return fmt.Errorf("%s:%d: %s: %s", e.path, line, e.key, problem)
	}
	if f.Changed {
		return nil
	}
	from := origin{place: e.place(), key: e.key}
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return o.set(f, from, e.value.Value)
	}
	items := []string{}
	for _, item := range e.value.Content {
		items = append(items, resolve(item).Value)
	}
	o.origins[f.Name], f.Changed = from, true
	return list.Replace(items)
}

// misfit says what is wrong with a value that YAML reads as another type than the setting's, and in
// which line; nothing if the type is right. No text is read as a number, and no number as a text.
func (s *setting) misfit(f *pflag.Flag, e fileEntry) (line int, problem string) {
	value := e.value
	_, isList := s.value.(*[]string)
	switch {
	case isNull(value):
		return e.line, "has no value; write one, or remove the line"
	case isList && value.Kind == yaml.SequenceNode:
		return misfitOfItems(value)
	case isList && value.Kind == yaml.ScalarNode:
		return e.line, shown(value) + ": must be a list, such as [" + strings.ReplaceAll(value.Value, ",", ", ") + "]"
	case isList:
		return e.line, "must be a list, not a mapping"
	case value.Kind == yaml.SequenceNode:
		return e.line, s.expects(f) + ", not a list"
	case value.Kind == yaml.MappingNode:
		return e.line, s.expects(f) + ", not a mapping"
	case slices.Contains(tagsOf(s.value), value.ShortTag()):
		return 0, ""
	case isText(value):
		return e.line, shown(value) + ": " + s.expects(f) + ", without quotes"
	case f.Value.Type() == "string":
		return e.line, fmt.Sprintf("%s: must be a text; write %q", shown(value), value.Value)
	}
	return e.line, shown(value) + ": " + s.expects(f)
}

func misfitOfItems(list *yaml.Node) (line int, problem string) {
	for _, node := range list.Content {
		switch item := resolve(node); {
		case item.Kind != yaml.ScalarNode || isNull(item):
			return node.Line, "the items of a list must be texts"
		case !isText(item):
			return node.Line, fmt.Sprintf("%s: the items of a list must be texts; write %q", shown(item), item.Value)
		}
	}
	return 0, ""
}

// tagsOf are the types of YAML that the value of a setting may have.
func tagsOf(field any) []string {
	switch field.(type) {
	case *bool:
		return []string{"!!bool"}
	case *int:
		return []string{"!!int"}
	case *float64:
		return []string{"!!int", "!!float"}
	case *ByteSize: // as a quantity of Kubernetes
		return []string{"!!str", "!!int"}
	}
	return []string{"!!str"}
}

// expects describes good values of a setting.
func (s *setting) expects(f *pflag.Flag) string {
	switch s.value.(type) {
	case *ByteSize:
		return mustBeBytes
	case *string:
		if s.words != nil {
			return mustBeOneOf(s.words)
		}
		return "must be a text"
	}
	return expectedOf(f.Value.Type())
}

// shown is a plain value as the file has it.
func shown(n *yaml.Node) string {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return strconv.Quote(n.Value)
	}
	return n.Value
}
