/**
 * A kube-relay in userspace mode on loopback, with its status page.
 *
 * @module
 */
import { permissionFlags } from "../../lib/os/permissions.ts";
import { eventually } from "../support/eventually.ts";
import { LineProcess } from "../support/drivers/line_process.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** A Service with one endpoint. */
export interface SceneService {
  readonly name: string;
  /** @default {"default"} */
  readonly namespace?: string;
  readonly port: number;
}

const MAIN = new URL("../../main.ts", import.meta.url).pathname;
const NODE = "page-test";

/** It ends with the scene. */
export class PageScene implements AsyncDisposable {
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
