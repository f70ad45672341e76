package downgrade

import (
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// enableInFile makes the file of a stopped server say that a downgrade runs.
func enableInFile(t *testing.T, dir, target string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, &bbolt.Options{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("cluster")).Put([]byte("downgrade"),
			[]byte(`{"target-version":"`+target+`","enabled":true}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
