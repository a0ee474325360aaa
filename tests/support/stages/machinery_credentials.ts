/**
 * The accounts of the API machinery of `tests/apiserver`: its token file and its certificates.
 *
 * @module
 */
import type { PemPair } from "../../conformance/server.ts";
import { replaceFile } from "../builders/kubeconfig_file.ts";
import { runTool } from "../drivers/run_tool.ts";

/** The user that the client under test is. */
export const CLIENT_USER = "kube-relay";

/** Tokens and certificates of one API machinery, in files that its server reads again when they change. */
export class MachineryCredentials {
  /** The token of a user with all rights; never rotated. */
  readonly adminToken: string = crypto.randomUUID();
  /** Lines of token, user and uid. */
  readonly tokenFile: string;
  /** Folder of both authorities and of the server's certificate. */
  readonly folder: string;
  readonly #program: string;
  #token = "";

  /** `program` is the built one of `tests/apiserver`. */
  constructor(program: string, folder: string) {
    this.#program = program;
    this.tokenFile = `${folder}/tokens`;
    this.folder = `${folder}/certificates`;
  }

  /** The token of the client under test. */
  get token(): string {
    return this.#token;
  }

  /** Gives the client under test a new token; the former one is refused from the next request on. */
  async rotateToken(): Promise<string> {
    this.#token = crypto.randomUUID();
    const lines = [`${this.#token},${CLIENT_USER},1`, `${this.adminToken},admin,2`, ""];
    await replaceFile(this.tokenFile, lines.join("\n"));
    return this.#token;
  }

  /**
   * Makes a client certificate. With a new authority, certificates of the former one are refused
   * soon after.
   */
  async issueCertificate(
    { newAuthority = false }: { readonly newAuthority?: boolean } = {},
  ): Promise<PemPair> {
    const out = `${this.folder}/${crypto.randomUUID()}`;
    await runTool(this.#program, [
      "certificate",
      `--certificates=${this.folder}`,
      `--user=${CLIENT_USER}`,
      `--new-authority=${newAuthority}`,
      `--out=${out}`,
    ]);
    return {
      cert: await Deno.readTextFile(`${out}.crt`),
      key: await Deno.readTextFile(`${out}.key`),
    };
  }

  /** The CA of the server's certificate, PEM. There once the server has started. */
  serverAuthority(): Promise<string> {
    return Deno.readTextFile(`${this.folder}/server-ca.crt`);
  }

  /** The CA of client certificates, PEM. */
  clientAuthority(): Promise<string> {
    return Deno.readTextFile(`${this.folder}/client-ca.crt`);
  }
}
