// Package exit gives the errors of the command line their exit codes: 0 done, 1 failed at run time, 2 usage or
// configuration, 3 not found, 4 conflict, 5 unauthorised. It imports no package of the broker.
//
// Start with With and Code.
package exit
