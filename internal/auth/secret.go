package auth

import (
	"fmt"
	"io"
	"log/slog"
)

// secret is a token. However it is printed, encoded or logged, alone or inside something else, it does not show: fmt prints a pointer
// inside a value as an address, even where it may not call methods. The zero value is none.
type secret struct{ text *string }

const concealed = "[concealed]"

func newSecret(text string) secret { return secret{&text} }

// reveal is for those who must know: who sends it upstream, and who makes its digest.
func (s secret) reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

func (s secret) empty() bool { return s.text == nil || *s.text == "" }

// Format implements fmt.Formatter, for every verb.
func (secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, concealed) }

// MarshalText implements encoding.TextMarshaler, and so encoding/json's.
func (secret) MarshalText() ([]byte, error) { return []byte(concealed), nil }

// LogValue implements slog.LogValuer.
func (secret) LogValue() slog.Value { return slog.StringValue(concealed) }
