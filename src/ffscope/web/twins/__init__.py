"""What each page shows, as plain numbers and text: the same for the browser, for a script and for an export."""
