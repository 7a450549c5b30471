package contract

// SuggestSubject is where the service experiments answers a SuggestionRequest.
const SuggestSubject = "switchyard.experiments.suggest"

// SuggestionRequest asks where a search goes next whose trials its client runs. A search has no memory, so the client
// tells all of it.
type SuggestionRequest struct {
	// Space are the parameters.
	Space []Parameter `json:"space"`
	// Algorithm is random, grid or gp. The others pause trials, which only an experiment can do.
	Algorithm SearchAlgorithm `json:"algorithm"`
	// Seed makes two searches differ.
	Seed uint64 `json:"seed,omitempty"`
	// Levels is the number of values of a range in the grid (default 4).
	Levels int `json:"levels,omitempty"`
	// Minimise says that lower values are better.
	Minimise bool `json:"minimise,omitempty"`
	// Trials are those so far, in the order in which they were started.
	Trials []ToldTrial `json:"trials,omitempty"`
}

// MostTold is the largest number of trials of a SuggestionRequest: what the Gaussian process costs grows with its cube.
const MostTold = 500

// ToldTrial is what a client tells about a trial.
type ToldTrial struct {
	// Params are its values.
	Params map[string]Value `json:"params"`
	// Value is its result. Without one it still runs, or has failed.
	Value *float64 `json:"value,omitempty"`
	// Failed is set if it ended without a result.
	Failed bool `json:"failed,omitempty"`
}

// Suggestion is where a search goes next.
type Suggestion struct {
	// Params are the values of the next trial.
	Params map[string]Value `json:"params,omitempty"`
	// Over is set if all points have been tried.
	Over bool `json:"over,omitempty"`
}
