package plan

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

// pageToken is where a list goes on, as clients carry it from page to page. It names neither
// cluster nor resource nor selector, so that ours are good upstream and upstream's are good here
// (W-80, W-81).
type pageToken struct {
	Version string `json:"v"`
	// RV is the state that the list began with. A negative one asks for the most recent state instead.
	RV int64 `json:"rv"`
	// Start is the first key that is wanted, within the request's own scope: mostly the last key
	// returned and a NUL.
	Start string `json:"start"`
}

const tokenVersion = "meta.k8s.io/v1" // #nosec G101 -- the version of continue tokens

// errForeignToken says that a token is refused by upstream in words that we cannot know.
var errForeignToken = errors.New("upstream words what is wrong with this continue token")

// decodeContinue reads a token, or refuses it in upstream's words (W-82). The start of a token of
// upstream's begins with a slash or not, depending on which of its two stores made the token; Start
// never does. A client can make a token up, so Start only says where in the request's own scope to
// begin.
func decodeContinue(text string) (pageToken, error) {
	const invalid = "continue key is not valid"
	var c pageToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return c, fmt.Errorf("%s: %w", invalid, err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		var syntax *json.SyntaxError
		if !errors.As(err, &syntax) { // it names upstream's own types
			return c, errForeignToken
		}
		return c, fmt.Errorf("%s: %w", invalid, err)
	}
	switch {
	case c.Version != tokenVersion:
		return c, fmt.Errorf("%s: server does not recognize this encoded version %v", invalid, c.Version)
	case c.RV == 0:
		return c, fmt.Errorf("%s: incorrect encoded start resourceVersion (version %s)", invalid, tokenVersion)
	case c.Start == "":
		return c, fmt.Errorf("%s: encoded start key empty (version %s)", invalid, tokenVersion)
	}
	start := strings.TrimPrefix(c.Start, "/")
	if path.Clean("/"+start) != "/"+start {
		return c, fmt.Errorf("%s: %v", invalid, c.Start)
	}
	c.Start = start
	return c, nil
}

// EncodeContinue makes the token of the page after last, a key relative to the request's scope.
func EncodeContinue(rv uint64, last string) string {
	text, err := json.Marshal(pageToken{
		Version: tokenVersion,
		RV:      int64(rv), // #nosec G115 -- etcd's revisions are int64
		Start:   "/" + last + "\x00",
	})
	if err != nil { // a struct of strings and a number always encodes
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
