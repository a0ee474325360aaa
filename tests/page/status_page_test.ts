/**
 * The status page of a running kube-relay, as a person meets it: in Chromium.
 *
 * @module
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import axe from "axe-core";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { PageScene } from "./page_scene.ts";

const CHROMIUM = "chromium-headless-shell";

const ignore = isMissing("the status page in a browser", [program(CHROMIUM)]);

/** The folder for pictures that a person checks. @default {none are made} */
const PICTURES = Deno.env.get("KUBE_RELAY_PICTURES");

const THEMES = ["light", "dark"] as const;
const SIZES = {
  "360 px": { width: 360, height: 800 },
  "800 px": { width: 800, height: 900 },
  "1400 px": { width: 1400, height: 900 },
  "1920 px": { width: 1920, height: 1080 },
} as const;

function test(name: string, fn: (scene: PageScene, browser: Browser) => Promise<void>): void {
  Deno.test({
    name: `status page: ${name}`,
    ignore,
    // The browser's own pipes and timers are puppeteer's.
    sanitizeOps: false,
    sanitizeResources: false,
    async fn() {
      await using scene = await PageScene.start();
      const browser = await puppeteer.launch({
        browser: "chrome",
        executablePath: `/usr/bin/${CHROMIUM}`,
        headless: "shell",
        args: ["--no-sandbox"],
      });
      try {
        await fn(scene, browser);
      } finally {
        await browser.close();
      }
    },
  });
}

/** A page that fails the test by whatever the browser complains of. */
async function openPage(scene: PageScene, browser: Browser) {
  const page = await browser.newPage();
  const complaints: string[] = [];
  const asked: string[] = [];
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => asked.push(request.url()));
  await page.setViewport(SIZES["1400 px"]);
  await page.goto(scene.url);
  return { page, complaints, asked };
}

async function textOf(page: Page, selector: string): Promise<string> {
  return await page.$eval(
    selector,
    (element) => (element as unknown as { innerText: string }).innerText,
  );
}

async function shows(
  page: Page,
  { selector, text }: { selector: string; text: RegExp },
): Promise<void> {
  await eventually(
    `${selector} shows ${text}`,
    async () => text.test(await textOf(page, selector)),
  );
}

test("is whole without scripts", async (scene, browser) => {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(false);
  await page.goto(scene.url);
  assertStringIncludes(await textOf(page, "#services"), "default/web:http");
  assertStringIncludes(await textOf(page, "#summary"), "serving");
  assertMatch(await textOf(page, "#syncs"), /sync/);
  await page.type("#filter", "default/other");
  await Promise.all([page.waitForNavigation(), page.click("button")]);
  assertEquals((await textOf(page, "#services")).includes("default/web"), false);
});

test("follows the node while it is open", async (scene, browser) => {
  const { page, complaints, asked } = await openPage(scene, browser);
  await shows(page, { selector: "#connection", text: /^Live$/ });
  await scene.apply("added", { name: "added", port: 8080 });
  await shows(page, { selector: "#services", text: /default\/added:http/ });
  await shows(page, { selector: "#changes", text: /default\/added/ });
  await scene.remove("added");
  await eventually(
    "the Service goes",
    async () => !(await textOf(page, "#services")).includes("default/added"),
  );
  assertEquals(complaints, [], "the browser complains of nothing");
  assertEquals(
    asked.filter((url) => !url.startsWith(scene.url)),
    [],
    "nothing is fetched elsewhere",
  );
});

test("says that kube-relay is gone, and goes on when it is back", async (scene, browser) => {
  const { page } = await openPage(scene, browser);
  await shows(page, { selector: "#connection", text: /^Live$/ });
  await scene.stop();
  await shows(page, { selector: "#connection", text: /^Not connected/ });
  assertStringIncludes(await textOf(page, "#services"), "default/web:http");
  await scene.restart();
  await shows(page, { selector: "#connection", text: /^Live$/ });
});

test("keeps where a reader is", async (scene, browser) => {
  const { page } = await openPage(scene, browser);
  await shows(page, { selector: "#connection", text: /^Live$/ });
  await page.focus("#services a");
  const address = await page.evaluate("document.activeElement.href");
  await scene.apply("added", { name: "added", port: 8080 });
  await shows(page, { selector: "#services", text: /default\/added:http/ });
  assertEquals(await page.evaluate("document.activeElement.href"), address);
});

test(
  "filters as a reader types, and explains a Service and an endpoint",
  async (scene, browser) => {
    const { page, complaints } = await openPage(scene, browser);
    await shows(page, { selector: "#connection", text: /^Live$/ });
    await page.type("#filter", "default/oth");
    await eventually(
      "the other Service goes",
      async () => !(await textOf(page, "#services")).includes("default/web"),
    );
    for (
      const [selector, words] of [["tbody th a", "cluster IP of default/other:http"], [
        "tbody td a",
        "FORWARDED|NOT HANDLED",
      ]]
    ) {
      // Not by a click: an update may replace the link meanwhile.
      const address = await page.$eval(
        `#services ${selector}`,
        (link) => (link as unknown as { href: string }).href,
      );
      await page.goto(address);
      assertMatch(await textOf(page, "main"), new RegExp(words!));
      assertEquals(await page.$eval("header a", (link) => link.getAttribute("href")), "./");
      await page.goto(scene.url);
    }
    assertEquals(complaints, [], "the browser complains of nothing");
  },
);

test("is used by keyboard alone", async (scene, browser) => {
  const { page } = await openPage(scene, browser);
  const order: string[] = [];
  for (let step = 0; step < 3; step++) {
    await page.keyboard.press("Tab");
    order.push(
      await page.evaluate(
        "document.activeElement.id || document.activeElement.className || document.activeElement.localName",
      ) as string,
    );
  }
  assertEquals(order, ["skip", "filter", "button"]);
  await page.focus(".skip");
  assert((await (await page.$(".skip"))!.boundingBox())!.x >= 0, "who has come to it sees it");
  await page.focus("#filter");
  await page.keyboard.type("default/oth");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assertEquals((await textOf(page, "#services")).includes("default/web"), false);
});

for (const theme of THEMES) {
  for (const [size, viewport] of Object.entries(SIZES)) {
    test(`has no fault that axe finds, ${theme}, ${size}`, async (scene, browser) => {
      await scene.apply("long", { name: "w".repeat(63), namespace: "n".repeat(63), port: 443 });
      const { page } = await openPage(scene, browser);
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      await page.setViewport(viewport);
      await shows(page, { selector: "#connection", text: /^Live$/ });
      await shows(page, { selector: "#services", text: /n{63}\/w{63}/ });
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate("axe.run()") as axe.AxeResults;
      assertEquals(
        violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`),
        [],
      );
      const widths = await page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
      ) as [number, number];
      assertEquals(widths[0], widths[1], "nothing sticks out at the side");
      if (PICTURES !== undefined) {
        const path = `${PICTURES}/status_page_${theme}_${size.replace(" ", "_")}.png`;
        await Deno.writeFile(path, await page.screenshot({ fullPage: true }));
      }
    });
  }
}
