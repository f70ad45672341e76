package etcdctl

import "testing"

func TestEtcdctl_PutGetDelPrintWhatTheyPrintOnEtcd(t *testing.T) {
	t.Parallel()
	compare(t, join(
		every("get nothing"),
		[]step{
			run("put a 1"), run("put a 2 --prev-kv"), run("put b/1 x"), run("put b/2 y"), run("put b/3 z"),
			run("put c").input("value from standard input"),
			run("put b/2 yy").format("json"), run("put b/2 yyy --prev-kv").format("fields"),
			run("put a --ignore-value"), run("put nothing --ignore-value"), run("put a 3 --ignore-value"),
			run("put nothing 1 --ignore-lease"), run("put d 1 --lease=1234"), run("put a"), run("put"),
		},
		every("get a"), every("get b/ --prefix"), every("get a c"), every("get --from-key b/2"),
		every("get b/ --prefix --keys-only"), every("get b/ --prefix --count-only"),
		every("get b/ --prefix --limit=2"), every("get --prefix b/ --order=DESCEND"),
		every("get --prefix b/ --sort-by=MODIFY --order=DESCEND"), every("get --prefix b/ --sort-by=CREATE"),
		every("get --prefix b/ --sort-by=VALUE"), every("get --prefix b/ --sort-by=KEY --limit=1"),
		every("get b/2 --rev=4"), every("get b/2 --rev=6"), every("get b/2 --rev=100"), every("get b/2 --rev=-1"),
		every("get a --consistency=s"), every("get --prefix b/ --min-mod-rev=5"),
		every("get --prefix b/ --max-mod-rev=5"), every("get --prefix b/ --min-create-rev=5"),
		every("get --prefix b/ --max-create-rev=5"), every("get b/ --prefix --stream"),
		[]step{
			run("get a --print-value-only"), run("get a --hex"),
			run("get b/ --prefix --print-value-only"), run("get --sort-by=NOTHING a"), run("get"), run("get a b c"),
			run("get --prefix --from-key b/"), run("get a --consistency=x"), run("get b/ --prefix --stream --rev=3"),
			run("get b/ --prefix --stream --order=DESCEND --sort-by=MODIFY"),
		},
		[]step{
			run("del nothing"), run("del b/1"), run("del b/2 --prev-kv"), run("put b/4 4"), run("put b/5 5"),
			run("del --prefix b/ --prev-kv").format("json"), run("put b/4 4"), run("put b/5 5"),
			run("del b/4 b/6 --prev-kv").format("fields"), run("del --from-key b").format("json"), run("del"),
			run("del --from-key --prefix a"), run("get --from-key a"),
		},
	))
}

func TestEtcdctl_TxnPrintsWhatItPrintsOnEtcd(t *testing.T) {
	t.Parallel()
	txn := func(text string) []step { return formats(run("txn").input(text)) }
	compare(t, join(
		txn("\n\n\n"),
		txn("mod(\"k\") = \"0\"\n\nput k 1\nget k\n\nget k\n\n"),
		txn("mod(\"k\") > \"0\"\n\nput k 2\nput l 2\n\nput k 9\n\n"),
		txn("value(\"k\") = \"2\"\n\ndel k --prev-kv\nput m 1\n\nget k\n\n"),
		txn("version(\"l\") < \"100\"\ncreate(\"l\") != \"0\"\n\nget --prefix \"\"\n\n\n"),
		txn("version(\"l\") = \"1\"\n\nget l\n\nget m\n\n"),
		txn("value(\"none\") != \"1\"\n\nget l\n\nget m\nget l --keys-only\n\n"),
		txn("\nput k 1\nput k 2\n\n\n\n"), txn("\ndel --prefix k\nput k1 2\n\n\n\n"),
		txn("\nget k --rev=1000\nput z 1\n\n\n\n"), txn("\nput z 1 --lease=77\n\n\n\n"),
		txn("\nput z --ignore-value\n\n\n\n"), every("get z"), every("get --prefix \"\""),
	))
}

func TestEtcdctl_CompactionPrintsWhatItPrintsOnEtcd(t *testing.T) {
	t.Parallel()
	compare(t, join(
		[]step{
			run("put a 1"), run("put a 2"), run("put b 1"), run("del b"), run("put a 3"), run("put c 1"),
			run("compaction 100"), run("compaction 4"), run("compaction 4"), run("compaction 2"),
			run("get a --rev=3"), run("get a --rev=4"), run("get b --rev=4"), run("get b --rev=5"),
			run("compaction 6 --physical"), run("compaction x"), run("compaction"), run("compaction 0"),
			run("get a --rev=5"), run("watch a --rev=3"), run("get a --rev=6").format("json"),
		},
		every("endpoint hashkv"), []step{run("endpoint hashkv").format("table"), run("endpoint hashkv --rev=6")},
		every("endpoint hashkv --rev=5"), every("endpoint hashkv --rev=50"),
	))
}

func TestEtcdctl_WatchPrintsWhatItPrintsOnEtcd(t *testing.T) {
	t.Parallel()
	watch := func(line string) (steps []step) {
		for _, s := range formats(run(line)) {
			until := "the end"
			if s.args[1] == "json" {
				until = "dGhlIGVuZA==" // the same in base64, as JSON prints values
			}
			steps = append(steps, s.stopAt(until))
		}
		return steps
	}
	compare(t, join(
		[]step{
			run("put a 1"), run("put a 2"), run("put ab 1"), run("del a"), run("put a 3"), run("del --prefix a"),
			run("txn").input("\nput a 4\nput ab 4\nput b 4\n\n\n\n"), {args: []string{"put", "a", "the end"}},
			{args: []string{"put", "c", "the end"}},
		},
		watch("watch a --rev=1"), watch("watch a --rev=1 --prev-kv"), watch("watch --prefix a --rev=3 --prev-kv"),
		watch("watch a b --rev=2"), watch("watch --prefix --rev=1 --prev-kv a"), watch("watch a --rev=9"),
		watch("watch --rev=1 c"),
		[]step{
			run("watch a --rev=8").stopAt("the end"), run("watch"),
			run("watch b a --rev=1"),
		},
	))
}
