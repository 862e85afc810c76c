// Light or dark: the system's choice until the user makes one, which is kept.

const KEY = "deepinfer.theme";

export type Theme = "system" | "light" | "dark";

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");

export function chosenTheme(): Theme {
  try {
    const stored = window.localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system";
  }
}

export function chooseTheme(theme: Theme): void {
  try {
    if (theme === "system") {
      window.localStorage.removeItem(KEY);
    } else {
      window.localStorage.setItem(KEY, theme);
    }
  } catch {
    // Without storage the choice holds until the page is closed.
  }
  apply(theme);
}

export function toggleTheme(): void {
  chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

/** Before anything is shown, and whenever the system changes. */
export function followTheme(): void {
  apply(chosenTheme());
  systemIsDark.addEventListener("change", () => apply(chosenTheme()));
}

function apply(theme: Theme): void {
  const dark = theme === "dark" || (theme === "system" && systemIsDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}
