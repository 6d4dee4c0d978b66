"""Tables, figures and the HTML report of finished jobs: reads results, trains nothing."""
