package gateway

import "testing"

func TestJSON_SpacesStayInStringsOnly(t *testing.T) {
	for text, want := range map[string]string{
		``: ``, ` `: ``, `{}`: `{}`, `{"a": 1, "b":[ 2, 3 ]}`: `{"a":1,"b":[2,3]}`, `"a b"`: `"a b"`,
		`{"a b": "c \" d", "e":"\\" , "f":"\\\" "}`: `{"a b":"c \" d","e":"\\","f":"\\\" "}`, `"open `: `"open `, `"`: `"`,
		`"\`: `"\`, `{"a":"", "b":" "}`: `{"a":"","b":" "}`,
	} {
		if got := string(withoutSpaces([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}
