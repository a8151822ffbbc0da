// Before the page is drawn: light or dark as the user chose here before, or as the browser says.
const chosen = localStorage.getItem("slotwise-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
