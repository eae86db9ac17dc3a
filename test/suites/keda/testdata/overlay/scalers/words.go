package scalers

// Words that the files of other scalers define.
const (
	externalMetricType = "External"
	sumOperation       = "sum"
	avgOperation       = "avg"
	maxOperation       = "max"
)
