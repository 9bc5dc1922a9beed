package auth

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a token. Printed, encoded or logged, alone or inside something else, it does not show:
// fmt prints a pointer inside a value as an address, even where it may not call methods. The zero
// value is no token.
type Secret struct{ text *string }

const concealed = "[concealed]"

// NewSecret conceals a token.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal is the token, for code that sends it upstream, verifies it or makes its digest.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, concealed) }

// MarshalText implements encoding.TextMarshaler, and so encoding/json's.
func (Secret) MarshalText() ([]byte, error) { return []byte(concealed), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(concealed) }
