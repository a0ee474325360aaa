/** The fake API server in a namespace, as a test uses it. */
import type { RawObject } from "../../conformance/server.ts";
import type { FakeApiRequest } from "../fakes/fake_api_program.ts";
import type { LineProcess } from "./line_process.ts";
import type { Namespace } from "../stages/netns.ts";

/** A running API server. It ends with its namespace, if not before. */
export class ApiProcess {
  /** Path of a kubeconfig that leads to it from the same namespace. */
  readonly kubeconfig: string;
  readonly #process: LineProcess;

  private constructor(process: LineProcess, kubeconfig: string) {
    this.#process = process;
    this.kubeconfig = kubeconfig;
  }

  /** Starts it; it listens when this resolves. */
  static async start(namespace: Namespace, kubeconfig: string): Promise<ApiProcess> {
    const file = new URL("../fakes/fake_api_program.ts", import.meta.url);
    const process = namespace.startDeno(file, [kubeconfig]);
    await process.nextLine();
    return new ApiProcess(process, kubeconfig);
  }

  /** Its last words, if it has any. */
  get errors(): string {
    return this.#process.errors;
  }

  /** Creates or replaces objects, then deletes others. */
  async write(
    objects: readonly RawObject[],
    { deleted = [] }: { readonly deleted?: readonly RawObject[] } = {},
  ): Promise<void> {
    await this.#ask({ do: "write", objects, deleted });
  }

  /** Closes all connections and stops listening; the objects stay. */
  async close(): Promise<void> {
    await this.#ask({ do: "close" });
  }

  /** Listens again, at the same port. */
  async reopen(): Promise<void> {
    await this.#ask({ do: "reopen" });
  }

  /** Stops it from running; its connections stay open and say nothing. */
  freeze(): void {
    this.#process.signal("SIGSTOP");
  }

  /** Lets it run again. */
  thaw(): void {
    this.#process.signal("SIGCONT");
  }

  async #ask(request: FakeApiRequest): Promise<void> {
    await this.#process.writeLine(JSON.stringify(request)).catch((cause) => {
      throw new Error(`Cannot ${request.do}: the server has ended\n${this.#process.errors}`, {
        cause,
      });
    });
    const answer = await this.#process.nextLine();
    if (answer !== "done") throw new Error(`Cannot ${request.do}: ${answer}`);
  }
}
