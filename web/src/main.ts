import { App } from "./app";
import { followTheme } from "./theme";

followTheme();
document.addEventListener("DOMContentLoaded", () => new App().start());
