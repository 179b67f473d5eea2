// A query of a table that begins with `PartitionKey eq '...'` reads that partition, not the whole table.
"use strict";
const azurite = require("./azurite");
const { Resultset } = azurite("lokijs");
const queries = "./table/persistence/QueryInterpreter";
const Generator = azurite("./table/persistence/LokiTableStoreQueryGenerator").default;
const interpret = azurite(`${queries}/QueryInterpreter`).default;
const parse = azurite(`${queries}/QueryParser`).default;
const { validateQueryTree } = azurite(`${queries}/QueryValidator`);
const node = (name) => azurite(`${queries}/QueryNodes/${name}Node`).default;
const [AndNode, ConstantNode, EqualsNode, IdentifierNode] = ["And", "Constant", "Equals", "Identifier"].map(node);

// Only the leftmost condition counts: for a row of another partition Azurite does not evaluate the others either.
function partitionOf(tree) {
  if (tree instanceof AndNode) return partitionOf(tree.left);
  const { left, right } = tree;
  const isPartition = tree instanceof EqualsNode && left instanceof IdentifierNode && left.identifier === "PartitionKey";
  return isPartition && right instanceof ConstantNode && typeof right.value === "string" ? right.value : undefined;
}

// Azurite's own, but that the condition says which partition it is about.
const { generateQueryEntityWhereFunction } = Generator;
Generator.generateQueryEntityWhereFunction = function (query) {
  if (!query || query === "true" || query === "false") return generateQueryEntityWhereFunction.call(this, query);
  const tree = parse(query);
  validateQueryTree(tree);
  return Object.assign((entity) => interpret(entity, tree), { partition: partitionOf(tree) });
};

const { where } = Resultset.prototype;
Resultset.prototype.where = function (condition) {
  if (condition.partition !== undefined && !this.filterInitialized) this.find({ PartitionKey: condition.partition });
  return where.call(this, condition);
};
