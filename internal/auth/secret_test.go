package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// However what holds a token is printed or logged, the token does not show.
func TestTokensDoNotShow(t *testing.T) {
	const token = "the-token"
	s := NewSecret(token)
	c := &Credential{token: s}
	values := []any{
		s, &s, c, *c, Result{Credential: c}, &Result{Credential: c}, map[string]Secret{"a": s},
		[]*Credential{c}, struct{ inner Credential }{*c}, &flight[TokenVerdict]{},
	}
	hidden := func(how, text string) {
		t.Helper()
		for _, shape := range []string{token, fmt.Sprintf("%x", token), fmt.Sprintf("%v", []byte(token)),
			fmt.Sprintf("%X", token)} {
			if strings.Contains(text, shape) {
				t.Errorf("%s shows the token: %s", how, text)
			}
		}
	}
	for _, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%c", "%U"} {
			hidden(fmt.Sprintf("%s of a %T", verb, v), fmt.Sprintf(verb, v))
		}
		raw, err := json.Marshal(v)
		if err == nil {
			hidden(fmt.Sprintf("JSON of a %T", v), string(raw))
		}
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("told", "what", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("told", "what", v)
		core, logs := observer.New(zap.DebugLevel)
		zap.New(core).Info("told", zap.Any("what", v))
		for _, entry := range logs.All() {
			encoded, err := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()).EncodeEntry(entry.Entry, entry.Context)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(encoded.Bytes())
		}
		hidden(fmt.Sprintf("a log line of a %T", v), out.String())
	}
}

// A digest depends on where one part ends and the next begins. Without the key of the hasher it
// reveals nothing about the parts.
func TestDigest(t *testing.T) {
	h := NewHasher()
	if h.Sum("a", "bc") == h.Sum("ab", "c") || h.Sum("a") == h.Sum("a", "") || h.Sum() == h.Sum("") {
		t.Error("different parts have one digest")
	}
	if one, again := h.Sum("a", "b"), h.Sum("a", "b"); one != again {
		t.Error("equal parts have two digests")
	}
	if h.Sum("a") == NewHasher().Sum("a") {
		t.Error("two hashers agree: the key is not random")
	}
}

// Identities that differ in anything have different digests.
func TestIdentityDigest(t *testing.T) {
	h := NewHasher()
	seen := map[Digest]int{}
	for i, who := range []*Identity{
		{name: "a"}, {uid: "a"}, {groups: []string{"a"}}, {name: "a", groups: []string{"b"}},
		{name: "a", groups: []string{"b", "c"}},
		{name: "a", groups: []string{"c", "b"}}, {name: "a", groups: []string{"bc"}}, {name: "a", uid: "b"},
		{name: "a", extra: map[string][]string{"b": nil}}, {name: "a", extra: map[string][]string{"b": {"c"}}},
		{name: "a", extra: map[string][]string{"b": {}, "c": {}}},
		{name: "a", groups: []string{"b"}, extra: map[string][]string{"c": nil}},
	} {
		d := who.digest(h)
		if other, ok := seen[d]; ok {
			t.Errorf("%d and %d have one digest", i, other)
		}
		seen[d] = i
	}
}
