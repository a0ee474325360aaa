/** A Prometheus on loopback, with a folder of its own. */
import { stringify } from "@std/yaml";
import { eventually } from "../eventually.ts";
import { LineProcess } from "./line_process.ts";
import { unusedPort } from "./unused_port.ts";

/** One series of an answer, with its value now. */
export interface QueriedSeries {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [at: number, value: string];
}

/** The Prometheus. Disposing of it ends it and removes its folder. */
export class PrometheusProcess implements AsyncDisposable {
  readonly #url: string;
  readonly #folder: string;
  readonly #process: LineProcess;

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.#url = `http://127.0.0.1:${port}/api/v1/`;
    this.#process = new LineProcess("prometheus", [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--log.level=warn",
    ]);
  }

  /** Starts it with a configuration, in the form of its file; resolves when it answers. */
  static async start(configuration: object): Promise<PrometheusProcess> {
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-prometheus-" });
    await Deno.writeTextFile(
      `${folder}/prometheus.yml`,
      stringify(configuration as Record<string, unknown>),
    );
    const prometheus = new PrometheusProcess(folder, unusedPort());
    try {
      await prometheus.until("it answers", async () => {
        if (prometheus.#process.hasEnded) throw new Error("it has ended");
        return await prometheus.get("status/buildinfo").then(() => true, () => false);
      });
      return prometheus;
    } catch (error) {
      await prometheus[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** As `eventually()`; the error contains the log. */
  async until(what: string, ask: () => Promise<boolean>): Promise<void> {
    await eventually(what, ask).catch((cause) => {
      throw new Error(`${what}\nlog: ${this.#process.errors}`, { cause });
    });
  }

  /** The data of an answer of its API. Throws an Error with its reason. */
  async get(path: string, query: Record<string, string> = {}): Promise<unknown> {
    const response = await fetch(`${this.#url}${path}?${new URLSearchParams(query)}`);
    const { status, data, error } = await response.json();
    if (status !== "success") throw new Error(`Cannot get ${path}: ${error}`);
    return data;
  }

  /** The series of an expression, now. */
  async query(expression: string): Promise<readonly QueriedSeries[]> {
    const data = await this.get("query", { query: expression }) as {
      readonly result: readonly QueriedSeries[];
    };
    return data.result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.kill();
    await Deno.remove(this.#folder, { recursive: true });
  }
}
