package quantity

import "testing"

func TestQuantitiesThatWouldTakeLongAreRefused(t *testing.T) {
	for text, want := range map[string]bool{
		"100m": true, "1.5Gi": true, "-1": true, "2e3": true, "1E-9": true,
		"1e-100000000": false, "1e100": false, "": false, "lots": false, "123456789012345678901234567890123": false,
	} {
		if _, err := Parse(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
