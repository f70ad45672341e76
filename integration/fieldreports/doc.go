// Package fieldreports holds one test for each kind of fault that has hurt the users of such servers. A test's name
// says what it protects; its comment gives the number of the report (T01 and so on) and the public issue. The package
// has no code outside its tests.
package fieldreports
