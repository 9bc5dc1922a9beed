package links

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"spillway/test/framework/process"
)

// documents are the Markdown files of the repository.
func documents(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && path != root &&
			(strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "dist", "node_modules", "testdata"}, name)):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, ".md"):
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLinks(t *testing.T) {
	root := process.Repository(t)
	links := 0
	for _, document := range documents(t, root) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range linksIn(string(text)) {
			links++
			if why := broken(document, link); why != "" {
				t.Errorf("%s: %s: %s", strings.TrimPrefix(document, root+"/"), link, why)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// TestBrokenLinks shows that a link to what does not exist is found.
func TestBrokenLinks(t *testing.T) {
	document := filepath.Join(t.TempDir(), "a.md")
	text := "# One\n\n[good](#a-b-and-c) [good](a.md#one) [bad](b.md) ![bad](pictures/a.svg) [bad](#two) " +
		"[elsewhere](https://example.com) [good](#w-1) [bad](#w-2) [good](#one-1) [bad](#one-2) `[code](d.md)`\n\n" +
		"## A, `b` and C\n\n```\n[code](c.md)\n<a id=\"w-2\"></a>\n```\n<a id=\"w-1\"></a>\n**W-1**\n\n" +
		"## [One](a.md)\n\n[good]: #w-1\n[bad]: #three\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	links := linksIn(text)
	var bad []string
	for _, link := range links {
		if broken(document, link) != "" {
			bad = append(bad, link)
		}
	}
	want := []string{"b.md", "pictures/a.svg", "#two", "#w-2", "#one-2", "#three"}
	if len(links) != 12 || !slices.Equal(bad, want) {
		t.Errorf("%q of %q, want %q", bad, links, want)
	}
}

var (
	aLink    = regexp.MustCompile(`(?m)\]\(([^)\s]+)\)|^\[[^\]]+\]: +(\S+)`)
	aHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	aTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	anID     = regexp.MustCompile(`<a id="([^"]+)">`)
	aBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	aSpan    = regexp.MustCompile("`[^`\n]*`")
)

// linksIn are the links of a document that stay in this repository.
func linksIn(text string) (all []string) {
	for _, found := range aLink.FindAllStringSubmatch(aSpan.ReplaceAllString(aBlock.ReplaceAllString(text, ""), ""), -1) {
		if link := found[1] + found[2]; !strings.Contains(link, "://") && !strings.HasPrefix(link, "mailto:") {
			all = append(all, link)
		}
	}
	return all
}

// broken is the reason why a link of a document leads nowhere, or empty.
func broken(document, link string) string {
	path, anchor, _ := strings.Cut(link, "#")
	target := document
	if path != "" {
		target = filepath.Join(filepath.Dir(document), path)
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if anchor == "" || !strings.HasSuffix(target, ".md") {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchorsIn(string(text)), anchor) {
		return "there is no such anchor"
	}
	return ""
}

// anchorsIn are a document's headings, as GitHub names them in links, and its HTML anchors.
func anchorsIn(text string) (all []string) {
	text = aBlock.ReplaceAllString(text, "")
	times := map[string]int{}
	for _, heading := range aHeading.FindAllStringSubmatch(text, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, aTarget.ReplaceAllString(heading[1], ""))
		n := times[anchor]
		if times[anchor]++; n > 0 {
			anchor += "-" + strconv.Itoa(n)
		}
		all = append(all, anchor)
	}
	for _, id := range anID.FindAllStringSubmatch(text, -1) {
		all = append(all, id[1])
	}
	return all
}
