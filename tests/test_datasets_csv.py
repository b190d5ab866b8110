"""Tables of text to zarr, by both readers."""

import sys

import numpy as np
import pytest
import zarr
from dataset_files import X, Y, check, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamgda.datasets import convert
from streamgda.errors import InvalidParameterError, SourceError


@pytest.fixture(params=["pyarrow", "python"], autouse=True)
def reader(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow", None)


class TestCsv:
    HEADER = ("length", "width", "kind")
    ROWS = ((1.5, "-2e3", "ant"), (0, " 7 ", "bee"), ("nan", "inf", "Ω, the last"))
    FEATURES = np.array([[1.5, -2000], [0, 7], [np.nan, np.inf]])
    LABELS = ("ant", "bee", "Ω, the last")

    @pytest.mark.parametrize("header", [None, True])
    @pytest.mark.parametrize("column", [None, 2, -1, "kind"])
    def test_label_column(self, tmp_path, header, column):
        path = write_csv(tmp_path / "data.csv", [self.HEADER, *self.ROWS])
        group = convert(path, tmp_path / "out", label_column=column, header=header)
        check(group, self.FEATURES, self.LABELS)

    @pytest.mark.parametrize("column", [0, "kind", -3])
    def test_label_first(self, tmp_path, column):
        rows = [row[-1:] + row[:-1] for row in (self.HEADER, *self.ROWS)]
        path = write_csv(tmp_path / "data.csv", rows)
        check(convert(path, tmp_path / "out", label_column=column), self.FEATURES, self.LABELS)

    @pytest.mark.parametrize("header", [None, False])
    def test_without_header(self, tmp_path, header):
        path = write_csv(tmp_path / "data.csv", self.ROWS)
        check(convert(path, tmp_path / "out", header=header), self.FEATURES, self.LABELS)

    def test_header_of_numbers(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", [(0, 1, "kind"), *self.ROWS])
        check(convert(path, tmp_path / "a", header=True), self.FEATURES, self.LABELS)
        check(convert(path, tmp_path / "b", label_column="kind"), self.FEATURES, self.LABELS)
        check(
            convert(path, tmp_path / "c"),
            np.vstack([[0, 1], self.FEATURES]),
            ["kind", *self.LABELS],
        )

    @pytest.mark.parametrize(
        ("texts", "values"),
        [
            (["1", "-2", "+03"], np.array([1, -2, 3])),
            (["1", "2.5", "1e3"], np.array([1, 2.5, 1000])),
            (["1", "2.5", "x"], np.array(["1", "2.5", "x"])),
            (["1", "2", "1_0"], np.array(["1", "2", "1_0"])),
            (["1", "2", "inf"], np.array(["1", "2", "inf"])),
            (["0", "0", "12345678901234567890"], np.array([0, 0, 12345678901234567890.0])),
        ],
    )
    def test_kinds_of_labels(self, tmp_path, texts, values):
        path = write_csv(tmp_path / "data.csv", [[0.5, text] for text in texts])
        check(convert(path, tmp_path / "out", chunk_rows=1), np.full((3, 1), 0.5), values, 1)

    def test_external_labels_and_none(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", self.FEATURES)
        check(convert(path, tmp_path / "a", labels=False), self.FEATURES)
        group = convert(path, tmp_path / "b", labels=Y[:3], chunk_rows=2)
        check(group, self.FEATURES, Y[:3], 2)

    def test_dialects(self, tmp_path):
        rows = [self.HEADER, *self.ROWS]
        for name, options, delimiter in [
            ("a.csv.gz", {}, ","),
            ("b.tsv", {}, "\t"),
            ("c.CSV", {"delimiter": ";"}, ";"),
            ("d.tsv.gz", {"delimiter": ","}, ","),
        ]:
            path = write_csv(tmp_path / name, rows, delimiter, encoding="utf-8-sig")
            group = convert(path, tmp_path / f"{name}.zarr", label_column="kind", **options)
            check(group, self.FEATURES, self.LABELS)

    def test_blank_lines_quotes_and_spaces(self, tmp_path):
        path = tmp_path / "data.csv"
        path.write_text('\n"a", "b", "c"\r\n\n1, "2", "two\nlines"\n\n3,4, "a ""quoted"" one"')
        group = convert(path, tmp_path / "out", label_column="c")
        check(group, np.array([[1.0, 2], [3, 4]]), ["two\nlines", 'a "quoted" one'])

    def test_pixels(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", np.column_stack([X, Y]).tolist())
        check(convert(path, tmp_path / "out", dtype="uint8"), X, Y.astype(np.int64))
        with pytest.raises(SourceError, match=r"line 1: field 1 does not fit int8: '255'"):
            convert(path, tmp_path / "other", dtype="int8")

    @given(
        values=hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
        data=st.data(),
        chunk_rows=st.integers(1, 4),
    )
    @settings(max_examples=25)
    def test_round_trip(self, tmp_path, values, data, chunk_rows):
        text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
        text = text.filter(lambda t: t == t.lstrip(" ") and t.strip() and t[0] != "\ufeff")
        names = data.draw(st.lists(text, min_size=len(values), max_size=len(values)))
        names[0] = "a name"
        column = data.draw(st.integers(0, values.shape[1]))
        rows = [
            [*row[:column], name, *row[column:]]
            for row, name in zip(values.tolist(), names, strict=True)
        ]
        path = write_csv(tmp_path / "data.csv", rows)
        store = zarr.storage.MemoryStore()
        group = convert(path, store, label_column=column, chunk_rows=chunk_rows)
        check(group, values, names)

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("a,b,c\n1,2,x\n1,2,3,x\n", {}, "line 3: 4 fields, the first line has 3"),
            ("1,2,x\n\n\n1,x\n", {}, "line 4: 2 fields, the first line has 3"),
            ("a,b,c\n1,2,x\n1,two,x\n", {}, "line 3: field 2 is not a number: 'two'"),
            (
                "c,a,b\nx,1,2\nx,1,\n",
                {"label_column": 0, "dtype": "int8"},
                "line 3: field 3 does not fit int8: ''",
            ),
            ("1,2,x\n1,2_0,x\n", {}, "line 2: field 2 is not a number: '2_0'"),
            ("a,2,x\n1,2,x\n", {}, "line 1: field 1 is not a number: 'a'"),
            ("a,b,c\n1,2,x\n", {"header": False}, "line 1: field 1 is not a number: 'a'"),
            ("1,2,x\n1,2,\n", {}, "line 2: the label is missing: ''"),
            ("1,2,x\n1,2,NA\n", {}, "line 2: the label is missing: 'NA'"),
            ("1,x,x\n1,2\n", {"header": False}, "line 1: field 2 is not a number: 'x'"),
            ('1,2,x\n1,2,"x\n1,2,x\n', {}, "after line 3: unexpected end of data"),
            ("a,b\n1,x\n", {"label_column": "c"}, "0 columns named 'c'.*a, b"),
            ("a,a\n1,x\n", {"label_column": "a"}, "2 columns named 'a'"),
            ("a,b\n", {}, "a header but no rows"),
            ("x\ny\n", {}, "no columns of features"),
            ("", {}, "no columns of features"),
        ],
    )
    def test_errors_name_the_line(self, tmp_path, text, options, message):
        path = tmp_path / "data.csv"
        path.write_text(text)
        with pytest.raises(SourceError, match=message) as caught:
            convert(path, tmp_path / "out", chunk_rows=1, **options)
        assert str(path) in str(caught.value)
        assert list(tmp_path.iterdir()) == [path]

    def test_other_encoding(self, tmp_path):
        path = tmp_path / "data.csv"
        path.write_bytes("1,é\n".encode("latin-1"))
        with pytest.raises(SourceError, match="line 0: 'utf-8' codec"):
            convert(path, tmp_path / "out")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"label_column": 3}, "one of 3 columns, not 3"),
            ({"label_column": -4}, "one of 3 columns, not -4"),
            ({"label_column": 0.5}, "one of 3 columns, not 0.5"),
            ({"delimiter": ""}, "delimiter must be one character"),
            ({"label_column": 0, "labels": Y[:3]}, "expected one of them"),
        ],
    )
    def test_parameters(self, tmp_path, options, message):
        path = write_csv(tmp_path / "data.csv", self.ROWS)
        with pytest.raises(InvalidParameterError, match=message):
            convert(path, tmp_path / "out", **options)
