// Runs before the first paint, so that a dark page never flashes white.
const theme = localStorage.getItem("chase.theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
