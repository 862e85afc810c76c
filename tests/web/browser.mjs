// Chromium without a window, and what every browser test checks: nothing on the console, no request to anybody else.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const puppeteer = createRequire(fileURLToPath(new URL("../../web/package.json", import.meta.url)))("puppeteer-core");

const DEADLINE_MS = 60_000; // of every wait: a loaded machine is slow, and a hang is found

export function launch() {
  // Chromium's sandbox does not start as root, as tests in containers do.
  const asRoot = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return puppeteer.launch({
    executablePath: process.env.CHROMIUM,
    args: [...asRoot, "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"],
  });
}

/** A page of a new user, with `finish` to check what it must not have done. */
export async function newUser(browser, origin, { width = 1280, height = 800, scheme = "light", allowed = /^$/ } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.setDefaultTimeout(DEADLINE_MS);
  await page.setViewport({ width, height, isMobile: width < 600, hasTouch: width < 600 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  const console = [];
  const foreign = [];
  // The browser itself reports failed requests; those that a test provokes are allowed by it.
  page.on("console", (message) => {
    if (!allowed.test(message.text())) console.push(message.text());
  });
  page.on("pageerror", (problem) => console.push(String(problem)));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`) && !/^(data|blob):/.test(request.url())) foreign.push(request.url());
  });
  await page.goto(`${origin}/`);
  return {
    page,
    async finish() {
      assert.deepEqual(console, []);
      assert.deepEqual(foreign, []);
      await context.close();
    },
  };
}

export function screenshot(page, name) {
  return page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`) });
}

/** Waits until an element that matches shows `text`; an empty text waits for the element. */
export function waitForText(page, selector, text) {
  return page.waitForFunction(
    (selector, text) => [...document.querySelectorAll(selector)].some((element) => element.checkVisibility() && element.innerText.includes(text)),
    {},
    selector,
    text,
  );
}

export function textsOf(page, selector) {
  return page.$$eval(selector, (elements) => elements.filter((element) => element.checkVisibility()).map((element) => element.innerText));
}

/** Clicks the visible button of this name. */
export async function press(page, name, within = "body") {
  const button = await page.waitForFunction(
    (name, within) =>
      [...document.querySelectorAll(`${within} button`)].find(
        (button) => button.checkVisibility() && !button.disabled && (button.getAttribute("aria-label") ?? button.innerText).startsWith(name),
      ),
    {},
    name,
    within,
  );
  await button.evaluate((element) => element.click());
}

export async function send(page, text) {
  await page.focus("#message");
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

/** Nothing is wider than the window. */
export async function assertNoSidewaysScroll(page) {
  const { content, view } = await page.evaluate(() => ({
    content: Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll(".scroller, main, .composer")].map((e) => e.scrollWidth)),
    view: document.documentElement.clientWidth,
  }));
  assert.ok(content <= view, `content is ${content} pixels wide, the window ${view}`);
}
