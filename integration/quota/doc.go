// Package quota tests what happens at the bound of the database: the quota, the alarms that it raises, what they stop
// and let through, and how space comes back. The package has no code outside its tests.
package quota
