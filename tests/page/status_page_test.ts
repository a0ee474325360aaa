/** The status page of a running kube-relay, as a person meets it: in Chromium. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import axe from "axe-core";
import puppeteer, { type Browser, type Page } from "puppeteer-core";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { LineProcess } from "../support/drivers/line_process.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** A Service with one endpoint. */
interface SceneService {
  readonly name: string;
  /** @default {"default"} */
  readonly namespace?: string;
  readonly port: number;
}

const MAIN = new URL("../../main.ts", import.meta.url).pathname;
const NODE = "page-test";

/** It ends with the scene. */
class PageScene implements AsyncDisposable {
  readonly #folder: string;
  readonly #port = unusedPort();
  #process: LineProcess;
  #services = 0;

  private constructor(folder: string) {
    this.#folder = folder;
    this.#process = this.#launch();
  }

  /** Starts it with two Services and waits until its page is there. */
  static async start(): Promise<PageScene> {
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-page-" });
    await Deno.mkdir(`${folder}/manifests`);
    const scene = new PageScene(folder);
    await scene.apply("web", { name: "web", port: 80 });
    await scene.apply("other", { name: "other", port: 81 });
    await scene.#ready();
    return scene;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}/`;
  }

  /** Writes the manifest of a Service and its endpoint. */
  async apply(file: string, { name, namespace = "default", port }: SceneService): Promise<void> {
    const number = ++this.#services;
    const ports = [{ name: "http", port, protocol: "TCP" }];
    const service = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name, namespace },
      spec: { clusterIP: `10.96.0.${number}`, ports },
    };
    const slice = {
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name, namespace, labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      endpoints: [{ addresses: [`10.1.0.${number}`], conditions: { ready: true } }],
      ports,
    };
    const text = [service, slice].map((object) => JSON.stringify(object)).join("\n---\n");
    await Deno.writeTextFile(`${this.#folder}/manifests/${file}.yaml`, text);
  }

  /** Takes a manifest away. */
  async remove(file: string): Promise<void> {
    await Deno.remove(`${this.#folder}/manifests/${file}.yaml`);
  }

  /** Ends kube-relay. */
  async stop(): Promise<void> {
    await this.#process.kill();
  }

  /** Starts it again at the same address. */
  async restart(): Promise<void> {
    this.#process = this.#launch();
    await this.#ready();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await Deno.remove(this.#folder, { recursive: true });
  }

  #launch(): LineProcess {
    const flags = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];
    return new LineProcess(Deno.execPath(), [
      ...["run", ...flags, MAIN, "--mode", "userspace", "--address-mode", "none"],
      ...["--manifests", `${this.#folder}/manifests`, "--hostname-override", NODE],
      ...["--control-socket", `${this.#folder}/control.sock`, "--state-dir", this.#folder],
      ...["--metrics-bind-address", `127.0.0.1:${this.#port}`, "--healthz-bind-address", ""],
      "--status-page",
    ]);
  }

  async #ready(): Promise<void> {
    await eventually("the page shows Services", async () => {
      const answer = await fetch(this.url).catch(() => undefined);
      return (await answer?.text())?.includes(`>default/web:http TCP</a>`);
    }).catch((cause) => {
      throw new Error(`the page never came; kube-relay said: ${this.#process.errors}`, { cause });
    });
  }
}

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
