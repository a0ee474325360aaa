/**
 * The table of the nftables mode in a namespace, written as the mode does: the difference from the
 * existing one is passed to the tool.
 *
 * @module
 */
import type { ToolRun } from "../agent_protocol.ts";
import { BenchNamespace } from "../bench_namespace.ts";
import { NFT } from "./nft_tool.ts";
import { TableModel, type TableSize } from "./table_model.ts";

/** The cost of one write. */
export interface TableWrite {
  /** Lines that the tool was given. */
  readonly lines: number;
  readonly run: ToolRun;
}

/** So many Services in a namespace of their own. */
export class BenchTable implements AsyncDisposable {
  readonly namespace: BenchNamespace;
  readonly model: TableModel;
  /** The cost of loading all Services. */
  readonly load: TableWrite;

  private constructor(namespace: BenchNamespace, model: TableModel, load: TableWrite) {
    this.namespace = namespace;
    this.model = model;
    this.load = load;
  }

  static async create(size: TableSize): Promise<BenchTable> {
    const namespace = await BenchNamespace.create(NFT);
    try {
      const model = new TableModel(size);
      return new BenchTable(namespace, model, await write(namespace, model));
    } catch (error) {
      await namespace[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Makes a change and writes it. */
  async write(change: (model: TableModel) => void): Promise<TableWrite> {
    change(this.model);
    return await write(this.namespace, this.model);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.namespace[Symbol.asyncDispose]();
  }
}

async function write(namespace: BenchNamespace, model: TableModel): Promise<TableWrite> {
  const transaction = await model.transaction();
  const run = await namespace.give(transaction.text());
  return { lines: transaction.lineCount, run };
}
